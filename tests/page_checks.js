// What is wrong with the page that a browser shows. page_checks.py calls contents and appearance.

const TEXT_CONTRAST = 4.5; // WCAG 2, level AA
const LEAST_LETTERS = 11; // CSS pixels

function name(element) {
  const id = element.id ? `#${element.id}` : "";
  const classes = [...element.classList].map((each) => `.${each}`).join("");
  const text = element.textContent.trim().replace(/\s+/g, " ").slice(0, 40);
  return `<${element.localName}${id}${classes}>` + (text && ` "${text}"`);
}

// The page's ids, the addresses of its links, and images that cannot be shown.
async function contents() {
  const images = [...document.images];
  for (const image of images) image.loading = "eager"; // hidden images are loaded, too
  await Promise.allSettled(images.map((image) => image.decode()));
  const broken = images.filter((image) => image.naturalWidth === 0);
  return {
    ids: [...document.querySelectorAll("[id]")].map((element) => element.id),
    links: [...document.links].map((link) => [link.href, name(link)]),
    faults: broken.map((image) => `${name(image)} cannot be shown: ${image.src}`),
  };
}

// Faults at the present width and in the present colour scheme, the page's background, and the drawings it shows. A scheme
// changes no sizes, and a width no colours.
function appearance(scheme, narrow) {
  for (const each of document.getAnimations()) each.cancel(); // colours that are still on their way to the new scheme
  backgrounds = new Map();
  const ofLayout = () => [...sidewaysScroll(), ...cutOff(), ...(narrow ? smallTexts() : doNotFit())];
  return {
    background: backgroundOf(document.body).join(", "),
    faults: [
      ...(scheme === "light" ? ofLayout() : []),
      ...wrongVariants(scheme),
      ...(narrow ? [] : faintTexts()),
    ],
    drawings: narrow ? drawings() : [],
  };
}

function sidewaysScroll() {
  const { scrollWidth } = document.documentElement;
  if (scrollWidth <= innerWidth) return [];
  const wide = [...document.body.querySelectorAll("*")].filter(
    (element) => element.getBoundingClientRect().right > innerWidth && !scrolls(element.parentElement),
  );
  const inmost = wide.filter((element) => !wide.some((other) => other !== element && element.contains(other)));
  return [`scrolls sideways, to ${scrollWidth} px: ${inmost.slice(0, 3).map(name).join(", ")}`];
}

function scrolls(element) {
  for (; element !== document.body; element = element.parentElement) {
    if (getComputedStyle(element).overflowX !== "visible") return true;
  }
  return false;
}

// Elements that hide what does not fit. Those of one pixel are texts for screen readers.
function cutOff() {
  const cut = [...document.querySelectorAll("article, article *")].filter(
    (element) =>
      element.scrollWidth > element.clientWidth + 1 &&
      element.clientWidth > 1 &&
      ["hidden", "clip"].includes(getComputedStyle(element).overflowX),
  );
  return cut.map((element) => `${name(element)} is cut off`);
}

// Code and tables that scroll in their boxes.
function doNotFit() {
  const boxes = [...document.querySelectorAll("article pre, article .table-wrapper")];
  const wide = boxes.filter((box) => box.scrollWidth > box.clientWidth + 1);
  return wide.map((box) => `${name(box)} is ${box.scrollWidth} px wide, not ${box.clientWidth}`);
}

// The files of drawings that are shown, and their widths.
function drawings() {
  const shown = [...document.images].filter((image) => image.checkVisibility());
  return shown.map((image) => {
    const source = [...image.parentElement.querySelectorAll("source")].find((each) => matchMedia(each.media).matches);
    return [name(image), new URL(source ? source.srcset : image.src, location).href, image.clientWidth];
  });
}

function wrongVariants(scheme) {
  const shown = (element) => getComputedStyle(element).display !== "none";
  const wrong = [...document.querySelectorAll(".only-light, .only-dark")].filter(
    (element) => shown(element) !== element.classList.contains(`only-${scheme}`),
  );
  return wrong.map((element) => `${name(element)} is ${shown(element) ? "shown" : "hidden"}`);
}

// The elements of texts that are shown, and their styles.
function* shownTexts() {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    if (!texts.currentNode.data.trim()) continue;
    const element = texts.currentNode.parentElement;
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    yield [element, getComputedStyle(element)];
  }
}

function faintTexts() {
  const faint = new Map(); // one text for each pair of colours, because a page has thousands of texts
  for (const [element, style] of shownTexts()) {
    const background = backgroundOf(element);
    const drawn = over(colour(element.closest("svg") ? style.fill : style.color), background);
    const contrast = contrastOf(drawn, background);
    const colours = `rgb(${drawn.join(", ")}) on rgb(${background.join(", ")})`;
    if (contrast < TEXT_CONTRAST && !faint.has(colours)) {
      faint.set(colours, `${name(element)} has a contrast of ${contrast.toFixed(2)}, ${colours}`);
    }
  }
  return [...faint.values()];
}

function smallTexts() {
  const small = new Map(); // one text for each size; 0 hides a text
  for (const [element, style] of shownTexts()) {
    const scale = element.closest("svg") ? element.getScreenCTM().d : 1;
    const size = (parseFloat(style.fontSize) * scale).toFixed(1);
    if (size > 0 && size < LEAST_LETTERS && !small.has(size)) {
      small.set(size, `${name(element)} has letters of ${size} px`);
    }
  }
  return [...small.values()];
}

let backgrounds = new Map(); // of elements, at the present appearance

function backgroundOf(element) {
  if (!element) return [255, 255, 255];
  if (!backgrounds.has(element)) {
    const own = colour(getComputedStyle(element).backgroundColor);
    backgrounds.set(element, over(own, backgroundOf(element.parentElement)));
  }
  return backgrounds.get(element);
}

function over([red, green, blue, alpha], below) {
  return [red, green, blue].map((value, i) => Math.round(value * alpha + below[i] * (1 - alpha)));
}

// The red, green, blue (0 to 255) and alpha (0 to 1) of any CSS colour. A canvas reads all of CSS's notations.
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const known = new Map();

function colour(css) {
  if (!known.has(css)) {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = css;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    known.set(css, [red, green, blue, alpha / 255]);
  }
  return known.get(css);
}

function contrastOf(one, other) {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

// The relative luminance of WCAG 2.
function luminance(rgb) {
  const [red, green, blue] = rgb.map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
