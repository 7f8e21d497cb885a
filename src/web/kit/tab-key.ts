/**
 * The API key is in memory. A key to use after a reload is also in the tab's own storage, until the
 * tab closes. The key is never in a URL, in a cookie, or in a storage that other tabs can read.
 */

const NAME = 'affidavit-key'

let held: string | null = null

export function tabKey(): string | null {
  held ??= storedKey()
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
  } catch {
    // Without storage, there is nothing to remove.
  }
}

function storedKey(): string | null {
  try {
    return sessionStorage.getItem(NAME)
  } catch {
    return null
  }
}
