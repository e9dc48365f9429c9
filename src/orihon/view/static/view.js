// What the pages do beyond links: keys, the slider, filters while typing, copying. Without it every page still works.

const state = { prefix: "" };

function say(text) {
  document.getElementById("status").textContent = text;
}

async function copy(button, text) {
  await navigator.clipboard.writeText(text);
  button.dataset.done = "";
  setTimeout(() => delete button.dataset.done, 1200);
  say("✓");
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
  if (!link || link.getAttribute("aria-disabled") === "true") return false;
  link.click();
  return true;
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
    else if (!follow('[data-tab="search"]')) location.href = "/search";
  },
  n: () => move(1),
  N: () => move(-1),
  "g s": () => { location.href = "/store"; },
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
  if (button.dataset.copy !== undefined) await copy(button, button.dataset.copy);
  if (button.dataset.action === "markdown") {
    const page = location.pathname === "/" ? "/tasks" : location.pathname;
    const answer = await fetch(`${page}.md${location.search}`);
    if (answer.ok) await copy(button, await answer.text());
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
      showChange();
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
    timer = setTimeout(async () => {
      await swap(`/?${new URLSearchParams(new FormData(form))}`, ["#list"]);
      showFigures();
    }, 150);
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

// the figures of the list that take longer to read
async function showFigures() {
  const table = document.querySelector("table.tasks");
  if (!table) return;
  const waiting = [...table.querySelectorAll("tr[data-uuid]")];
  while (waiting.length && table.isConnected) {
    const some = waiting.splice(0, 10);
    const answer = await fetch(`/figures.json?ids=${some.map((row) => row.dataset.uuid).join(",")}`);
    if (!answer.ok) return;
    const found = await answer.json();
    for (const row of some) {
      const figures = found[row.dataset.uuid];
      if (!figures) continue;
      const price = figures.dollars === null ? "" : money(figures.dollars);
      row.querySelector("[data-cost]").textContent = price || (figures.is_long || !figures.unpriced ? "" : table.dataset.unpriced);
      if (figures.sparkline) row.querySelector("[data-fill]").replaceChildren(sparkline(figures, table.dataset.fillLabel));
    }
  }
}

function sparkline(figures, label) {
  const make = (name) => document.createElementNS("http://www.w3.org/2000/svg", name);
  const svg = make("svg");
  svg.setAttribute("class", "spark");
  svg.setAttribute("width", "96");
  svg.setAttribute("height", "20");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${label}: ${Math.round(100 * figures.fill)} %`);
  const line = make("path");
  line.setAttribute("d", figures.sparkline);
  svg.append(line);
  return svg;
}

async function showChange() {
  const place = document.querySelector("[data-change]");
  if (!place) return;
  const answer = await fetch(place.dataset.change);
  if (!answer.ok) return;
  const { first_byte: byte, lost_tokens: tokens } = await answer.json();
  place.querySelector("span").textContent = byte === null
    ? place.dataset.grew
    : place.dataset.changed.replace("#1", byte.toLocaleString("en")).replace("#2", tokens.toLocaleString("en"));
}

function money(dollars) {
  return `$${dollars >= 1 || !dollars ? dollars.toFixed(2) : Number(dollars.toPrecision(2))}`;
}

async function showPrice() {
  const place = document.querySelector("[data-price]");
  if (!place) return;
  const answer = await fetch(`/t/${place.dataset.price}/cost.json`);
  if (!answer.ok) return;
  const { dollars } = await answer.json();
  place.textContent = dollars === null ? place.dataset.unpriced : money(dollars);
}

function watchTasks() {
  if (!document.querySelector("table.tasks") || location.search.includes("offset=")) return;
  new EventSource("/live").addEventListener("change", async () => {
    await swap(location.href, ["#list"]);
    showFigures();
  });
}

// new messages appear at the end; the page follows them only while its end is in view
function followTask() {
  const talk = document.querySelector(".conversation");
  if (!talk || talk.dataset.last !== talk.dataset.count) return;
  const news = document.querySelector("[data-news]");
  let unseen = 0;
  const isAtEnd = () => innerHeight + scrollY > document.documentElement.scrollHeight - 160;
  const source = new EventSource(`/t/${talk.dataset.uuid}/live?after=${talk.dataset.last}`);
  source.addEventListener("message", (event) => {
    const { seq, html } = JSON.parse(event.data);
    if (document.getElementById(`m${seq}`)) return;
    const wasAtEnd = isAtEnd();
    talk.querySelector(".empty")?.remove();
    talk.append(...new DOMParser().parseFromString(html, "text/html").body.children);
    talk.dataset.last = talk.dataset.count = seq;
    if (wasAtEnd) {
      while (talk.children.length > 600) talk.firstElementChild.remove();
      scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
    } else {
      unseen += 1;
      news.textContent = talk.dataset.new.replace("#", unseen);
      news.hidden = false;
    }
  });
  source.addEventListener("status", (event) => {
    const shown = document.querySelector(".head .status");
    const { status, text } = JSON.parse(event.data);
    if (shown) {
      shown.className = `status ${status}`;
      shown.textContent = text;
    }
  });
  news.addEventListener("click", () => scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" }));
  addEventListener("scroll", () => {
    if (isAtEnd()) {
      unseen = 0;
      news.hidden = true;
    }
  }, { passive: true });
}

// what a mark, a fold or a summary stands for
document.addEventListener("toggle", async (event) => {
  const { load, first, last } = event.target.dataset ?? {};
  if (!load || !event.target.open) return;
  delete event.target.dataset.load;
  const answer = await fetch(load);
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const hidden = [...page.querySelectorAll("article.message[id^=m]")].filter((one) => {
    const seq = Number(one.id.slice(1));
    return seq >= Number(first) && seq <= Number(last);
  });
  for (const one of hidden) one.removeAttribute("id");
  event.target.querySelector("div").prepend(...hidden);
}, true);

// the whole of a long text, in its place
document.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-expand]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const answer = await fetch(link.href);
  const whole = new DOMParser().parseFromString(await answer.text(), "text/html");
  const text = whole.querySelector("[data-full]");
  const place = link.previousElementSibling;
  if (!text || !place || whole.querySelector('.pager a[rel="next"]')) {
    location.href = link.href; // too long for this page
    return;
  }
  text.classList.add("whole");
  place.replaceWith(text);
  link.remove();
  text.focus();
});

window.addEventListener("hashchange", findMessage);
showFigures();
showPrice();
showChange();
watchTasks();
followTask();
setUpSlider();
setUpFilter();
findMessage();
