import './theme.css'
import { type ComponentChildren, render } from 'preact'
import { useFileDrops } from './dropped-file.ts'
import { SearchBox } from './search-box.tsx'
import { forgetKey } from './tab-key.ts'

const PLACES = [
  { path: '/verify', name: 'Verify' },
  { path: '/log', name: 'Logs' },
  { path: '/console', name: 'Console' },
  { path: '/docs', name: 'API' },
] as const

/** True if this page was saved as one file and has no gateway. */
export const IS_COPY = document.querySelector('meta[name="affidavit-copy"]') !== null

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
          {!IS_COPY && <SearchBox />}
        </div>
      </header>
      <DropPlace />
      <main id="main" tabIndex={-1}>
        {children}
      </main>
      <footer class="frame-end">
        <div>
          Affidavit: an inference gateway whose answers come with evidence that anyone can check.{' '}
          {!IS_COPY && <a href="/docs#words">What the words mean</a>}
        </div>
      </footer>
    </>
  )
}

function DropPlace() {
  const { isOver, isLost } = useFileDrops()
  return (
    <>
      {isOver && (
        <p class="drop-hint" aria-hidden="true">
          Drop the file. It is checked in this browser, and not sent anywhere.
        </p>
      )}
      {isLost && (
        <div class="frame-notice" role="alert">
          <p class="notice warn">
            This browser does not keep a file between two pages. <a href="/verify">Open Verify</a>,
            and drop the file there.
          </p>
        </div>
      )}
    </>
  )
}

export function showPage(page: ComponentChildren): void {
  const root = document.getElementById('page')
  if (root === null) throw new TypeError('expected an element with the id page')
  root.replaceChildren()
  if (window.opener !== null) leaveOpener()
  render(<Frame>{page}</Frame>, root)
}

/**
 * A tab that one of our pages opened starts with a copy of that page's storage. This function
 * removes the API key from the copy, but keeps the policy. It also makes sure that neither
 * tab can reach the other.
 */
function leaveOpener(): void {
  forgetKey()
  window.opener = null
}
