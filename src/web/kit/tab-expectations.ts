import { useEffect, useState } from 'preact/hooks'
import type { FormExpectations } from '../verify/job.ts'
import {
  type Held,
  type InForce,
  inForceOf,
  NOTHING_HELD,
  readHeld,
  writeHeld,
} from './expectations.ts'
import { IS_COPY } from './frame.tsx'

/*
 * The reader's expectations of enclaves, shared by all pages of this tab. They are in the tab's own
 * storage, which ends with the tab. A saved copy of a page holds them in memory alone: other files
 * on the reader's disk may write the storage that the copy would read.
 */

const NAME = 'affidavit-expectations'

/** The expectations in the form that pages use. */
type TabExpectations = Held & {
  readonly inForce: InForce
  /** False: they are too large for the tab's storage, and end with this page. */
  readonly isKept: boolean
}

const stored = readHeld(storedText())
let current: TabExpectations = { ...stored, inForce: inForceOf(stored), isKept: true }
const listeners = new Set<(now: TabExpectations) => void>()

/** The current expectations; a component renders again when they change. */
export function useExpectations(): TabExpectations {
  const [now, setNow] = useState(current)
  useEffect(() => {
    setNow(current)
    listeners.add(setNow)
    return () => void listeners.delete(setNow)
  }, [])
  return now
}

/** The reader gave some expectations, or accepted them from a link. */
export function giveExpectations(
  part: Partial<FormExpectations>,
  { isLinked = current.isLinked } = {},
): void {
  change({ own: { ...current.own, ...part }, isLinked, place: placeOf(location.pathname) })
}

/** The reader expects nothing again; then what a development gateway says is in force. */
export function clearExpectations(): void {
  const { own, place, isLinked } = NOTHING_HELD
  change({ own, place, isLinked })
}

/** Keeps what a development gateway says about its enclaves. */
export function holdDevelopment(development: FormExpectations): void {
  set({ ...current, development })
}

/** Whether the reader wants to ignore what the development gateway says. */
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

function publish(next: TabExpectations): void {
  current = next
  for (const listener of listeners) listener(current)
}

let writes = 0

/** Keeping reads files, so that a later change may overtake an earlier one. */
async function keep(): Promise<void> {
  if (IS_COPY) return
  const mine = ++writes
  const text = await writeHeld(current)
  if (mine !== writes) return
  const isKept = store(text)
  if (isKept !== current.isKept) publish({ ...current, isKept })
}

/** False when the storage is full or missing. Then older expectations do not come back. */
function store(text: string): boolean {
  try {
    sessionStorage.removeItem(NAME)
    sessionStorage.setItem(NAME, text)
    return true
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

/** A page that the browser restored missed the changes on other pages meanwhile. */
addEventListener('pageshow', ({ persisted }) => {
  if (!persisted) return
  set({ ...readHeld(storedText()), development: current.development })
})

function placeOf(path: string): string {
  if (path.startsWith('/console')) return 'the playground'
  if (path.startsWith('/log')) return 'the page of a log'
  if (path.startsWith('/c/')) return 'the page of a completion'
  return 'Verify'
}
