import { type EventEmitter, getEventListeners } from 'node:events'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect } from 'vitest'

const ROOT = path.join(import.meta.dirname, '../..')

type Timer = { readonly made: Error; isOver(): boolean }

const timers = new Set<Timer>()

/** Of a timer of Node.js: whether it was cleared or has run. */
type Destroyable = { readonly _destroyed: boolean }

/**
 * From now on, `setTimeout` and `setInterval` note who called them. Gives what puts the real ones
 * back.
 */
export function watchTimers(): () => void {
  const { setTimeout, setInterval } = globalThis
  globalThis.setTimeout = noteEach(setTimeout)
  globalThis.setInterval = noteEach(setInterval)
  return () => Object.assign(globalThis, { setTimeout, setInterval })
}

function noteEach<F extends typeof setTimeout | typeof setInterval>(start: F): F {
  const noted = (...words: Parameters<F>) => {
    const timer = Reflect.apply(start, globalThis, words)
    const { _destroyed } = timer as unknown as Destroyable
    if (_destroyed === false)
      timers.add({
        made: new Error('timer'),
        isOver: () => (timer as unknown as Destroyable)._destroyed,
      })
    return timer
  }
  return Object.assign(noted, start)
}

/** The lines of product code whose timers still run, once each; forgets them. */
export function takeLeftTimers(): readonly string[] {
  const left = [...timers].filter((timer) => !timer.isOver()).map(({ made }) => lineOf(made))
  timers.clear()
  return [...new Set(left.filter((line) => line !== null))]
}

/** Who started a timer: the first line outside of Node.js, if it is one of the product. */
function lineOf({ stack = '' }: Error): string | null {
  const lines = stack.split('\n').slice(2)
  const line = lines.find((one) => !one.includes('node:') && !one.includes('leftovers.ts')) ?? ''
  const [, place = '', at = ''] = line.match(/\(?((?:file:\/\/)?\/[^:()]+):(\d+):\d+\)?$/) ?? []
  if (place === '') return null
  const file = path.relative(ROOT, place.startsWith('file:') ? fileURLToPath(place) : place)
  return /^(attestation|audit|client|enclave|packages|src)\//.test(file) ? `${file}:${at}` : null
}

/** Expects that a call left no listener at what outlives it: signals, sockets, stores. */
export async function expectNoListeners(
  owner: AbortSignal | EventEmitter,
  ...events: readonly string[]
): Promise<void> {
  const names = owner instanceof AbortSignal ? ['abort'] : events
  await expect
    .poll(() => names.filter((name) => getEventListeners(owner, name).length > 0))
    .toEqual([])
}
