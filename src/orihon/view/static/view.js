// What the pages do beyond links: keys, the slider, filters while typing, copying. Without it every page still works.

const state = { prefix: "" };

function say(text) {
  document.getElementById("status").textContent = text;
}

function rows() {
  return [...document.querySelectorAll("[data-row], article.message, li.item")];
}

function move(step) {
  const all = rows();
  if (!all.length) return;
  const current = all.indexOf(document.activeElement.closest("[data-row], article.message, li.item"));
  const target = all[Math.max(0, Math.min(all.length - 1, current < 0 ? (step > 0 ? 0 : all.length - 1) : current + step))];
  const focusable = target.matches("[data-row]") ? target.querySelector("a") : target;
  focusable.focus({ preventScroll: true });
  target.scrollIntoView({ block: "nearest" });
}

function follow(selector) {
  const link = document.querySelector(selector);
  if (link && link.getAttribute("aria-disabled") !== "true") link.click();
}

function jumpToError(step) {
  const errors = [...document.querySelectorAll("article.error")];
  if (!errors.length) return;
  const top = (element) => element.getBoundingClientRect().top;
  const next = step > 0 ? errors.find((one) => top(one) > 130) : errors.reverse().find((one) => top(one) < 90);
  if (next) {
    next.scrollIntoView();
    next.focus({ preventScroll: true });
  }
}

const keys = {
  j: () => move(1),
  k: () => move(-1),
  "[": () => follow('.slider a[rel="prev"], .pager a[rel="prev"]'),
  "]": () => follow('.slider a[rel="next"], .pager a[rel="next"]'),
  e: () => jumpToError(1),
  E: () => jumpToError(-1),
  "?": () => document.getElementById("help").showModal(),
  "/": () => {
    const field = document.querySelector("[data-search]");
    if (field) field.focus();
    else location.href = "/";
  },
  "g t": () => { location.href = "/"; },
  "g c": () => follow('[data-tab="conversation"]'),
  "g l": () => follow('[data-tab="timeline"]'),
  "g w": () => follow('[data-tab="windows"]'),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input:not([type=range]), select, textarea, dialog[open]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === "g") {
    state.prefix = "g ";
    return;
  }
  const action = keys[state.prefix + event.key];
  state.prefix = "";
  if (action) {
    event.preventDefault();
    action();
  }
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-action], [data-copy]");
  if (!button) return;
  if (button.dataset.action === "help") document.getElementById("help").showModal();
  if (button.dataset.copy !== undefined) {
    await navigator.clipboard.writeText(button.dataset.copy);
    say("✓");
  }
});

// the parts of a page that another address of the same kind shows differently
async function swap(address, selectors) {
  const answer = await fetch(address, { headers: { accept: "text/html" } });
  if (!answer.ok) return;
  const other = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const selector of selectors) {
    const here = document.querySelector(selector);
    const there = other.querySelector(selector);
    if (here && there) here.replaceWith(there);
  }
  document.title = other.title;
  history.replaceState(null, "", address);
}

function setUpSlider() {
  const slider = document.querySelector(".slider");
  if (!slider) return;
  let wanted = 0;
  document.addEventListener("input", (event) => {
    if (!event.target.matches(".slider input")) return;
    const call = event.target.value;
    wanted += 1;
    const mine = wanted;
    setTimeout(async () => {
      if (mine !== wanted) return;
      await swap(`/t/${slider.dataset.uuid}/call/${call}`, [".report", ".window", ".slider output"]);
      const { uuid, calls } = slider.dataset;
      const [before, after] = document.querySelectorAll(".slider a.step");
      before.href = `/t/${uuid}/call/${Math.max(1, Number(call) - 1)}`;
      after.href = `/t/${uuid}/call/${Math.min(Number(calls) + 1, Number(call) + 1)}`;
    }, 60);
  });
}

function setUpFilter() {
  const form = document.querySelector("form[data-live]");
  if (!form) return;
  let timer = 0;
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => swap(`/?${new URLSearchParams(new FormData(form))}`, ["#list"]), 150);
  });
}

// `/t/UUID#m812` is on the page of that message
function findMessage() {
  const talk = document.querySelector(".conversation");
  const wanted = /^#m(\d+)$/.exec(location.hash);
  if (!talk || !wanted) return;
  const seq = Number(wanted[1]);
  if (!document.getElementById(`m${seq}`) && seq <= Number(talk.dataset.count)) {
    location.replace(`/t/${talk.dataset.uuid}?at=${seq}#m${seq}`);
  }
}

window.addEventListener("hashchange", findMessage);
setUpSlider();
setUpFilter();
findMessage();
