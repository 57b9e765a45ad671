// Code and tables that are wider than their place can be reached and scrolled with the keyboard. Those that fit are no
// stops on the way.
(() => {
  const update = box => {
    if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) {
      box.tabIndex = 0;
    } else {
      box.removeAttribute("tabindex");
    }
  };
  const observer = new ResizeObserver(changes => changes.forEach(change => update(change.target)));
  for (const box of document.querySelectorAll(".content pre, .table-wrapper, .ob-scroll")) {
    update(box);
    observer.observe(box);
  }
})();
