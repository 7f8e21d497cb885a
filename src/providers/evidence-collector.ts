import { encodeHex, sha256 } from '#attestation/bytes.ts'
import { asError } from '../api/errors.ts'
import { backOffMs } from '../runtime/back-off.ts'
import { createFaultLog } from '../runtime/fault-log.ts'
import { createLoop } from '../runtime/loop.ts'
import {
  type Collected,
  type CollectedProvider,
  CollectionFault,
  type CollectionFaultCode,
  type CollectionParts,
  collectEvidence,
} from './collect-evidence.ts'
import { FetchFault, readTlsKey } from './fetch-over-tls.ts'
import type { ProviderEvidenceStore, StoredEvidence } from './provider-evidence-store.ts'
import type { ProviderTurnsStore } from './provider-turns-store.ts'

export type CollectionOutcome = 'collected' | CollectionFaultCode

/** How often the collector looks for evidence that is due and for new providers in the table. */
const LOOK_MS = 5_000
/** How often a gateway reads the TLS key of each provider. */
const KEY_LOOK_MS = 60_000
const KEY_TIMEOUT_MS = 10_000
/** A gateway may collect for this long. Then another gateway may collect. */
const TURN_LIMIT_MS = 120_000
/** Shortest pause between two collections from a provider, and longest pause after a failure. */
const PAUSE_MIN_MS = 60_000
const RETRY_MAX_MS = 3_600_000
const FAULT_LOG_MS = 600_000

type CollectorOptions = CollectionParts & {
  /** The providers of the enclaves' tables whose evidence is collected. */
  readonly providers: () => readonly CollectedProvider[]
  readonly evidence: Pick<ProviderEvidenceStore, 'save' | 'recordKey' | 'isEvidenceDue'>
  readonly turns: ProviderTurnsStore
  readonly intervalMs: number
  readonly onCollected: (collected: {
    readonly provider: string
    readonly outcome: CollectionOutcome
  }) => void
  readonly onNewKey: (provider: string) => void
  readonly pauseMinMs?: number
  readonly lookMs?: number
  readonly keyLookMs?: number
}

/**
 * Collects the evidence of each provider in the background: once in each interval, and before the
 * newest evidence expires. After a failure or incomplete collateral, tries again with growing
 * pauses. Of several gateways on one database, only one collects each time. Every gateway reads the
 * providers' TLS keys: evidence for a new key is collected at once, because until then, callers
 * that demand attested keys are refused. It is collected again until it states the key, because a
 * collection can meet another machine.
 */
export function createEvidenceCollector(options: CollectorOptions): {
  start(): void
  /** Aborts the running work. Another gateway may then collect at once. */
  stop(): Promise<void>
} {
  const { evidence, turns, intervalMs, now, log, onCollected, ca } = options
  const { pauseMinMs = PAUSE_MIN_MS, lookMs = LOOK_MS, keyLookMs = KEY_LOOK_MS } = options
  const faults = createFaultLog(FAULT_LOG_MS, () => performance.now())
  /** When the key of each origin is read next, Unix milliseconds. */
  const keyLooks = new Map<string, number>()

  async function collect(provider: CollectedProvider, signal: AbortSignal): Promise<void> {
    const { origin, kind } = provider
    const turn = { origin, kind, limitMs: TURN_LIMIT_MS, laterMaxMs: intervalMs }
    const before = await turns.takeTurn(turn)
    if (before === null) return await watchKey(provider, signal)
    let next = { pauseMs: 0, failures: before }
    const failures = before + 1
    const retry = { minMs: pauseMinMs, maxMs: Math.min(intervalMs, RETRY_MAX_MS) }
    const again = { failures, pauseMs: backOffMs(failures, retry, { jitter: 'half' }) }
    try {
      const { endsAtMs, isComplete } = await collectOnce(provider, signal)
      onCollected({ provider: provider.name, outcome: 'collected' })
      const leftMs = endsAtMs === null ? null : endsAtMs - now()
      const pauseMs = pauseAfter(leftMs, { intervalMs, pauseMinMs })
      next = isComplete ? { pauseMs, failures: 0 } : again
    } catch (error) {
      if (signal.aborted) return
      next = again
      if (!(error instanceof FetchFault || error instanceof CollectionFault)) throw error
      onCollected({ provider: provider.name, outcome: error.code })
      const level = before === 0 ? 'warn' : 'debug'
      log[level](
        { provider: provider.name, origin, code: error.code, err: error },
        'evidence of a provider not collected; tried again',
      )
    } finally {
      await turns.settleTurn({ ...turn, ...next })
    }
  }

  async function collectOnce(
    provider: CollectedProvider,
    signal: AbortSignal,
  ): Promise<Pick<Collected, 'isComplete'> & Pick<StoredEvidence, 'endsAtMs'>> {
    const { name, origin, kind } = provider
    const seen: string[] = []
    try {
      const onKey = (spki: string) => void seen.push(spki)
      const { document, facts, isComplete } = await collectEvidence(provider, options, {
        signal,
        onKey,
      })
      const { fetchedAtMs, endsAtMs, block, tlsKeys } = facts
      const keys = [...new Set(tlsKeys.map(({ spkiSha256 }) => spkiSha256))]
      const digest = encodeHex(sha256(document))
      const stored = { digest, fetchedAtMs, endsAtMs, block, keys }
      await evidence.save({ ...stored, provider: name, origin, kind, document })
      log.info({ provider: name, digest }, 'evidence of a provider collected')
      return { endsAtMs, isComplete }
    } finally {
      for (const spki of seen) await recordKey(provider, spki)
    }
  }

  /** A new key makes the next turn due at once, a key without evidence after growing pauses. */
  async function watchKey(provider: CollectedProvider, signal: AbortSignal): Promise<void> {
    const { origin } = provider
    if (now() < (keyLooks.get(origin) ?? 0)) return
    keyLooks.set(origin, now() + keyLookMs)
    const key = await readTlsKey(origin, { ca, timeoutMs: KEY_TIMEOUT_MS, signal })
    const isNew = await recordKey(provider, key)
    const look = { origin, spkiSha256: key, pauseMinMs: keyLookMs, pauseMaxMs: RETRY_MAX_MS }
    if (isNew || (await evidence.isEvidenceDue(look))) await turns.hurryTurn(provider)
  }

  /** Returns true for a new key at an origin where other keys were seen before. */
  async function recordKey({ name, origin }: CollectedProvider, spkiSha256: string) {
    const isNew = await evidence.recordKey({ origin, spkiSha256, atMs: Math.floor(now()) })
    if (isNew) {
      options.onNewKey(name)
      log.warn({ provider: name, origin, spkiSha256 }, 'a provider has a new TLS key')
    }
    return isNew
  }

  return createLoop(async (signal) => {
    const due = options.providers().map(async (provider) => {
      try {
        await collect(provider, signal)
      } catch (error) {
        // A provider that cannot be reached is reported by the next collection.
        if (signal.aborted || error instanceof FetchFault) return
        const { name } = provider
        if (faults.isDue(name))
          log.warn({ provider: name, err: asError(error) }, 'turn to collect evidence failed')
      }
    })
    await Promise.all(due)
    return lookMs
  })
}

/**
 * Returns half of `leftMs` (at least `pauseMinMs`), so that a failure leaves time for more tries.
 * Returns at most `intervalMs`, also for evidence that does not expire, or that had expired when it
 * was collected.
 */
export function pauseAfter(
  leftMs: number | null,
  { intervalMs, pauseMinMs }: { readonly intervalMs: number; readonly pauseMinMs: number },
): number {
  if (leftMs === null || leftMs <= 0) return intervalMs
  return Math.min(intervalMs, Math.max(pauseMinMs, leftMs / 2))
}
