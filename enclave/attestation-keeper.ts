import { createHash, X509Certificate } from 'node:crypto'
import { encodeBase64 } from '../attestation/bytes.ts'
import { decodeCbor } from '../attestation/nitro/cbor.ts'
import { CallFault } from './call-fault.ts'
import { describeError, type EventLog } from './logger.ts'
import type { Nsm } from './nsm/nsm.ts'

/** A document is not used any more when its leaf certificate has only so long to live. */
export const LEAF_MARGIN_MS = 5 * 60_000

/** Wait after a renewal that failed. */
export const RETRY_MS = 5_000

/**
 * Calls for fresh documents that may wait for the module, of each kind; it answers one at a time.
 */
export const FRESH_CALLS_MAX = 16

/** An attestation document, and until when records may carry it. */
export type KeptDocument = {
  /** SHA-256 (hex) of its bytes. */
  readonly digest: string
  /** Standard base64 of its bytes. */
  readonly base64: string
  /** notAfter of its leaf certificate, Unix milliseconds. */
  readonly leafNotAfterMs: number
}

export type AttestationKeeper = {
  /**
   * The document that records carry now. Null while no document is valid for LEAF_MARGIN_MS more,
   * or while the enclave's clock is further than CLOCK_SKEW_MAX_MS from the module's: a receipt
   * would state a wrong time.
   */
  readonly current: () => KeptDocument | null
  /** Why there is no current document, for the caller. */
  readonly unavailable: () => CallFault
  /**
   * A fresh document (base64) over the boot configuration and the caller's nonce. Throws CallFault
   * `too_busy` when FRESH_CALLS_MAX calls wait, and `not_ready` when the module fails.
   */
  readonly attestNonce: (nonce: Uint8Array) => Promise<string>
  /**
   * The same with the digest of another statement as user_data. It must be a statement of the
   * enclave itself: relying parties take any such digest for the enclave's word. These calls have
   * their own limit, because anyone may ask for nonces: a flood of nonces must not keep the log
   * from being attested.
   */
  readonly attestStatement: (statement: {
    readonly userData: Uint8Array
    readonly nonce: Uint8Array | null
  }) => Promise<string>
  readonly stop: () => void
}

/** Shortest delay before a renewal, for any document that the module gives. */
const DELAY_MIN_MS = 1_000

type KeeperOptions = {
  readonly nsm: Pick<Nsm, 'attest'>
  readonly publicKey: Uint8Array
  /** Digest of the boot configuration. */
  readonly userData: Uint8Array
  readonly renewMs: number
  /** The enclave's clock, Unix milliseconds. */
  readonly now: () => number
  /** Milliseconds of a clock that is never set. */
  readonly monotonic: () => number
  readonly log: EventLog
}

/**
 * Makes the first document, and then one whenever the newest is `renewMs` old or three margins from
 * its end, trying again every RETRY_MS. Throws what the module throws when the first one cannot be
 * made.
 */
export async function keepAttestation(options: KeeperOptions): Promise<AttestationKeeper> {
  const { nsm, publicKey, userData, renewMs, now, log } = options
  const clock = watchClock(options)
  const isOffTime = () => Math.abs(clock.skewMs()) > CLOCK_SKEW_MAX_MS
  let document = await attestAccount()
  let timer = setTimeout(renew, delayOf(document))
  const nonces: Calls = { running: 0 }
  const statements: Calls = { running: 0 }

  async function attestAccount(): Promise<KeptDocument> {
    const observed = clock.observe()
    const { timestampMs, ...described } = describeDocument(
      await nsm.attest({ publicKey, userData, nonce: null }),
    )
    observed(timestampMs)
    if (isOffTime()) log('error', 'clock is off', { ahead_ms: Math.round(clock.skewMs()) })
    return described
  }

  function delayOf({ leafNotAfterMs }: KeptDocument): number {
    if (isOffTime()) return RETRY_MS
    return Math.max(DELAY_MIN_MS, Math.min(renewMs, leafNotAfterMs - 3 * LEAF_MARGIN_MS - now()))
  }

  async function renew(): Promise<void> {
    let delayMs = RETRY_MS
    try {
      document = await attestAccount()
      delayMs = delayOf(document)
      log('info', 'attestation renewed', { document: document.digest })
    } catch (error) {
      log('error', 'attestation not renewed', describeError(error))
    }
    if (!isStopped) timer = setTimeout(renew, delayMs)
  }

  async function attestFresh(
    { userData, nonce }: { readonly userData: Uint8Array; readonly nonce: Uint8Array | null },
    calls: Calls,
  ): Promise<string> {
    if (calls.running >= FRESH_CALLS_MAX)
      throw new CallFault('too_busy', 'Too many attestation documents at once.')
    calls.running++
    try {
      return encodeBase64(await nsm.attest({ publicKey, userData, nonce }))
    } catch (error) {
      log('error', 'fresh attestation failed', describeError(error))
      throw new CallFault('not_ready', 'The security module gives no attestation document now.')
    } finally {
      calls.running--
    }
  }

  let isStopped = false
  return {
    current: () =>
      document.leafNotAfterMs - now() > LEAF_MARGIN_MS && !isOffTime() ? document : null,
    unavailable: () =>
      new CallFault(
        'not_ready',
        isOffTime()
          ? "The enclave's clock is not in step with its security module's."
          : 'The enclave has no valid attestation document now.',
      ),
    attestNonce: (nonce) => attestFresh({ userData, nonce }, nonces),
    attestStatement: (statement) => attestFresh(statement, statements),
    stop: () => {
      isStopped = true
      clearTimeout(timer)
    },
  }
}

/** Calls of one kind that wait for the module. */
type Calls = { running: number }

/**
 * Reads what the keeper must know of a document by the enclave's own module. Does not check the
 * document: relying parties verify it (verifyAttestation).
 */
function describeDocument(bytes: Uint8Array): KeptDocument & { readonly timestampMs: number } {
  const [, , payload] = decodeCbor(bytes).value as readonly [unknown, unknown, Uint8Array]
  const fields = decodeCbor(payload, { indefinite: 'top' }).value as ReadonlyMap<string, unknown>
  return {
    digest: createHash('sha256').update(bytes).digest('hex'),
    base64: encodeBase64(bytes),
    leafNotAfterMs: new X509Certificate(
      fields.get('certificate') as Uint8Array,
    ).validToDate.getTime(),
    timestampMs: Number(fields.get('timestamp')),
  }
}

/**
 * Furthest that the enclave's clock may be from the security module's, milliseconds. Receipts state
 * its time under oath; a clock that is kept in step is right to milliseconds, and a call to the
 * module may take a tenth of a second.
 */
export const CLOCK_SKEW_MAX_MS = 5_000

/** How far the enclave's clock is from the security module's, as far as this can be measured. */
type ClockWatch = {
  /**
   * Begins an observation of the module's time; what it gives takes the time that the module then
   * stated, Unix milliseconds.
   */
  observe(): (statedMs: number) => void
  /**
   * Milliseconds that the clock is ahead (behind: below 0), at least; 0 before the first
   * observation.
   */
  skewMs(): number
}

/**
 * Watches the clock `now` (Unix milliseconds): against each time that the module states, and
 * between those against a clock that is never set, so that a step is seen at once. A host that
 * pauses the enclave, which stops both, shows at the next observation.
 */
function watchClock({
  now,
  monotonic,
}: {
  readonly now: () => number
  readonly monotonic: () => number
}): ClockWatch {
  const offset = () => now() - monotonic()
  let observed: { readonly skewMs: number; readonly offsetMs: number } | null = null
  return {
    observe: () => {
      const beforeMs = now()
      return (statedMs) => {
        // The module stated its time somewhere between the two.
        const afterMs = now()
        const ahead = Math.max(0, beforeMs - statedMs)
        const behind = Math.max(0, statedMs - afterMs)
        observed = { skewMs: ahead - behind, offsetMs: offset() }
      }
    },
    skewMs: () => (observed === null ? 0 : observed.skewMs + offset() - observed.offsetMs),
  }
}
