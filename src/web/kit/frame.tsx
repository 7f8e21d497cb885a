import './theme.css'
import { type ComponentChildren, render } from 'preact'
import { forgetKey } from './tab-key.ts'

/** Where each page is, as the frame's navigation has it. */
const PLACES = [
  { path: '/verify', name: 'Verify' },
  { path: '/log', name: 'Logs' },
  { path: '/console', name: 'Console' },
  { path: '/docs', name: 'API' },
] as const

/** Whether this is a page that was saved as one file: no gateway is behind it. */
export const IS_COPY = document.querySelector('meta[name="affidavit-copy"]') !== null

/** A page in its frame: navigation above, what it is below. */
function Frame({ children }: { readonly children: ComponentChildren }) {
  const isHere = (path: string) =>
    location.pathname === path || location.pathname.startsWith(`${path}/`)
  return (
    <>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <header class="frame-top">
        <div>
          {IS_COPY ? (
            <span class="name">Affidavit</span>
          ) : (
            <a class="name" href="/">
              Affidavit
            </a>
          )}
          {!IS_COPY && (
            <nav aria-label="Pages">
              <ul>
                {PLACES.map(({ path, name }) => (
                  <li key={path}>
                    <a href={path} aria-current={isHere(path) ? 'page' : undefined}>
                      {name}
                    </a>
                  </li>
                ))}
              </ul>
            </nav>
          )}
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        {children}
      </main>
      <footer class="frame-end">
        <div>
          Affidavit: an inference gateway whose answers come with evidence that anyone can check.
        </div>
      </footer>
    </>
  )
}

/** Shows a page in the document that the gateway served. */
export function showPage(page: ComponentChildren): void {
  const root = document.getElementById('page')
  if (root === null) throw new TypeError('expected an element with the id page')
  root.replaceChildren()
  if (window.opener !== null) leaveOpener()
  render(<Frame>{page}</Frame>, root)
}

/**
 * A tab that a page of ours opened begins with a copy of that tab's storage, for what is expected.
 * The key stays in its own tab, and neither tab has a hold on the other.
 */
function leaveOpener(): void {
  forgetKey()
  window.opener = null
}
