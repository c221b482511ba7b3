// @ts-check
// The way in from a file of the user's: keep the session's key in this tab, and go on to the page.

const told = (/** @type {string} */ name) =>
  document.querySelector(`meta[name="profd-${name}"]`)?.getAttribute("content") ?? "";

sessionStorage.setItem("profd-session", told("session"));
location.replace(`/#${told("page")}`);
