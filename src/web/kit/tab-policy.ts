import { useEffect, useState } from 'preact/hooks'
import type { FormPolicy } from '../verify/job.ts'
import { IS_COPY } from './frame.tsx'
import { type Held, type InForce, inForceOf, NOTHING_HELD, readHeld, writeHeld } from './policy.ts'

/*
 * All pages of this tab share the reader's policy in the tab's own storage, until the tab
 * closes. A saved page keeps them only in memory, because other files on the reader's disk could
 * write to its storage.
 */

const NAME = 'affidavit-policy'

type TabPolicy = Held & {
  readonly inForce: InForce
  /**
   * False if the policy is too large for the tab's storage, or a file cannot be read: they
   * are then lost when the page closes.
   */
  readonly isKept: boolean
}

const stored = readHeld(storedText())
let current: TabPolicy = { ...stored, inForce: inForceOf(stored), isKept: true }
const listeners = new Set<(now: TabPolicy) => void>()

/** Renders the component again when the policy changes. */
export function usePolicy(): TabPolicy {
  const [now, setNow] = useState(current)
  useEffect(() => {
    setNow(current)
    listeners.add(setNow)
    return () => void listeners.delete(setNow)
  }, [])
  return now
}

/** Stores the policy that the reader typed, or accepted from a link. */
export function givePolicy(part: Partial<FormPolicy>, { isLinked = current.isLinked } = {}): void {
  change({ own: { ...current.own, ...part }, isLinked, place: placeOf(location.pathname) })
}

/** Removes the reader's policy. The statements of a development gateway are then in force. */
export function clearPolicy(): void {
  const { own, place, isLinked } = NOTHING_HELD
  change({ own, place, isLinked })
}

/** Stores what a development gateway states about its enclaves. */
export function holdDevelopment(development: FormPolicy): void {
  set({ ...current, development })
}

/** Stores whether the reader ignores the statements of the development gateway. */
export function refuseDevelopment(isDevelopmentRefused: boolean): void {
  change({ isDevelopmentRefused })
}

function change(part: Partial<Held>): void {
  set({ ...current, ...part })
  void keep()
}

function set(next: Held): void {
  publish({ ...next, isKept: current.isKept, inForce: inForceOf(next) })
}

function publish(next: TabPolicy): void {
  current = next
  for (const listener of listeners) listener(current)
}

let writes = 0

/**
 * Removes the old text before it reads the files, so that an old policy cannot come back. If the
 * policy changes during the reading, this call stores nothing.
 */
async function keep(): Promise<void> {
  if (IS_COPY) return
  const mine = ++writes
  store(null)
  // A browser does not read a chosen file that has changed on the disk since.
  const text = await writeHeld(current).catch(() => null)
  if (mine !== writes) return
  const isKept = store(text)
  if (isKept !== current.isKept) publish({ ...current, isKept })
}

/** False when there is no text, or the storage is full or missing. */
function store(text: string | null): boolean {
  try {
    sessionStorage.removeItem(NAME)
    if (text !== null) sessionStorage.setItem(NAME, text)
    return text !== null
  } catch {
    return false
  }
}

function storedText(): string {
  if (IS_COPY) return ''
  try {
    return sessionStorage.getItem(NAME) ?? ''
  } catch {
    return ''
  }
}

/**
 * A page that the browser restores from its history has missed changes by other pages, so it reads
 * the policy now.
 */
addEventListener('pageshow', ({ persisted }) => {
  if (!persisted) return
  // A reading that began before must not store its text over a newer policy.
  writes++
  set({ ...readHeld(storedText()), development: current.development })
})

function placeOf(path: string): string {
  if (path.startsWith('/console')) return 'the playground'
  if (path.startsWith('/log')) return 'the page of a log'
  if (path.startsWith('/c/')) return 'the page of a completion'
  return 'Verify'
}
