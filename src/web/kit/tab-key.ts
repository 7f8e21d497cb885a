/**
 * The API key is in memory. A key to use after a reload is also in the tab's own storage, until the
 * tab closes. The key is never in a URL, in a cookie, or in a storage that other tabs can read.
 */

const NAME = 'affidavit-key'
/** How often the reader signed out in this tab. */
const SIGN_OUTS = 'affidavit-sign-outs'

let signOuts = storedText(SIGN_OUTS)
let held: string | null = null

export function tabKey(): string | null {
  held ??= storedText(NAME)
  return held
}

/** `isKept`: the key stays after a reload of the page. */
export function holdKey(key: string, isKept: boolean): void {
  held = key
  if (!isKept) return
  try {
    sessionStorage.setItem(NAME, key)
  } catch {
    // Without storage, the key stays until the reader leaves the page.
  }
}

export function forgetKey(): void {
  held = null
  try {
    sessionStorage.removeItem(NAME)
    sessionStorage.setItem(SIGN_OUTS, String(Number(storedText(SIGN_OUTS)) + 1))
  } catch {
    // Without storage, there is nothing to remove.
  }
  signOuts = storedText(SIGN_OUTS)
}

function storedText(name: string): string | null {
  try {
    return sessionStorage.getItem(name)
  } catch {
    return null
  }
}

/**
 * A page that the browser restores from its history may show what a key opened. If the reader has
 * signed out on another page since, this page loses its key and its content, and starts again.
 */
addEventListener('pageshow', ({ persisted }) => {
  if (!persisted || storedText(SIGN_OUTS) === signOuts) return
  held = null
  document.body.replaceChildren()
  location.reload()
})
