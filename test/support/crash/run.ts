import { setTimeout as sleep } from 'node:timers/promises'
import { auditRun } from './audit.ts'
import { type ProvenCompletion, runCallers } from './callers.ts'
import type { KillableService } from './parts.ts'

/**
 * What a crash run came to. `faults` is empty when nothing that a caller was given is lost, doubled
 * or unproven.
 */
export type CrashReport = {
  readonly kills: ReadonlyMap<string, number>
  readonly proven: readonly ProvenCompletion[]
  readonly failures: ReadonlyMap<string, number>
  readonly faults: readonly string[]
}

const CALLERS = 8
const PAUSE_MAX_MS = 700
const DOWN_MAX_MS = 400

/**
 * Kills the parts in turn (`kills` in all) at random moments while callers work, starts each again
 * after a random while, lets the service come to rest, and audits it. `random` gives numbers in [0,
 * 1).
 */
export async function runCrashes(
  service: KillableService,
  { kills, random }: { readonly kills: number; readonly random: () => number },
): Promise<CrashReport> {
  const finished = new AbortController()
  const crowd = runCallers(
    { origin: () => service.origin, key: service.key, callers: CALLERS },
    finished.signal,
  )
  const counts = new Map<string, number>()
  try {
    for (let kill = 0; kill < kills; kill += 1) {
      const part = service.parts[kill % service.parts.length]
      if (!part) throw new Error('expected parts to kill')
      await sleep(random() * PAUSE_MAX_MS)
      await part.kill()
      await sleep(random() * DOWN_MAX_MS)
      await part.restart()
      counts.set(part.name, (counts.get(part.name) ?? 0) + 1)
      // One kill in four hits while another part is still coming back.
      if (random() < 0.75) await service.waitUntilReady()
    }
    await service.waitUntilReady()
    await sleep(2 * PAUSE_MAX_MS)
  } finally {
    finished.abort()
  }
  const { proven, failures } = await crowd
  return { kills: counts, proven, failures, faults: await auditRun(service, proven) }
}
