// Puts what the server sends into the page. Everything in it was escaped by the server, and the
// policy of the page lets nothing in it run.
"use strict";
(() => {
  const live = document.getElementById("live");
  const status = document.getElementById("status");
  if (!live || !window.EventSource) return;
  let source = null;

  // What somebody reads with a selection, or has reached with the Tab key, is left alone.
  const isSelected = () => {
    const s = window.getSelection();
    return s && !s.isCollapsed && live.contains(s.anchorNode);
  };

  const show = (html) => {
    if (isSelected()) return;
    const focused = live.contains(document.activeElement) && document.activeElement.getAttribute("href");
    const scrolled = [...live.querySelectorAll(".scroll")].map((e) => e.scrollLeft);
    const page = new DOMParser().parseFromString(html, "text/html");
    live.replaceChildren(...page.body.childNodes);
    live.querySelectorAll(".scroll").forEach((e, i) => { e.scrollLeft = scrolled[i] || 0; });
    if (focused) [...live.querySelectorAll("a")].find((a) => a.getAttribute("href") === focused)?.focus();
  };

  const say = (text, bad) => {
    if (status.textContent !== text) status.textContent = text;
    status.classList.toggle("bad", bad);
  };

  const open = () => {
    source = new EventSource(live.dataset.events);
    source.addEventListener("update", (e) => { say("live", false); show(e.data); });
    source.addEventListener("problem", (e) => say(e.data, true));
    source.addEventListener("error", () => say("not connected", true));
  };

  const close = () => { if (source) source.close(); source = null; };

  // A page that nobody sees is not kept up to date.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close(); else if (!source) open();
  });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", () => { if (!source && !document.hidden) open(); });
  if (!document.hidden) open();
})();
