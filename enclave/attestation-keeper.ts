import { createHash, X509Certificate } from 'node:crypto'
import { encodeBase64 } from '#attestation/bytes.ts'
import { decodeCbor } from '#attestation/nitro/cbor.ts'
import { CallFault } from './call-fault.ts'
import { describeError, type EventLog } from './logger.ts'
import type { Nsm } from './nsm/nsm.ts'
import type { AttestationInput } from './protocol/nsm-wire.ts'

/** A document is no longer used when its leaf certificate expires within this time. */
export const LEAF_MARGIN_MS = 5 * 60_000

export const RETRY_MS = 5_000

/**
 * Maximum number of waiting calls of attestNonce. The same maximum applies to attestStatement. The
 * module answers one call at a time.
 */
export const FRESH_CALLS_MAX = 16

export type KeptDocument = {
  /** SHA-256, hex. */
  readonly digest: string
  /** Standard base64. */
  readonly base64: string
  /** notAfter of the document's leaf certificate, Unix milliseconds. */
  readonly leafNotAfterMs: number
}

export type AttestationKeeper = {
  /**
   * The document for new records. Null while no document stays valid for LEAF_MARGIN_MS, or while
   * the enclave's clock is off by more than CLOCK_SKEW_MAX_MS: receipts would state a wrong time.
   */
  readonly current: () => KeptDocument | null
  /** The reason why `current` returns null. */
  readonly unavailable: () => CallFault
  /**
   * Makes a new document (base64) over the boot configuration and the caller's nonce. Throws
   * CallFault `too_busy` when FRESH_CALLS_MAX calls wait, and `not_ready` when the module fails.
   */
  readonly attestNonce: (nonce: Uint8Array) => Promise<string>
  /**
   * Like attestNonce, but `userData` is the digest of another statement. Pass only statements that
   * the enclave itself makes: relying parties trust them. Waiting calls are counted separately, so
   * a flood of nonces cannot stop the attestation of the log.
   */
  readonly attestStatement: (statement: {
    readonly userData: Uint8Array
    readonly nonce: Uint8Array | null
  }) => Promise<string>
  readonly stop: () => void
}

/** Shortest delay before a renewal, even if the module's document expires soon. */
const DELAY_MIN_MS = 1_000

type KeeperOptions = {
  readonly nsm: Pick<Nsm, 'attest'>
  readonly publicKey: Uint8Array
  /** Digest of the boot configuration. */
  readonly userData: Uint8Array
  readonly renewMs: number
  /** Unix milliseconds. */
  readonly now: () => number
  /** Milliseconds. */
  readonly monotonic: () => number
  readonly log: EventLog
}

/**
 * Makes the first document, and another when the newest is `renewMs` old or expires within three
 * times LEAF_MARGIN_MS. After a failure, and while the clock seems off, tries every RETRY_MS.
 * Throws the module's error if there is no first document.
 */
export async function keepAttestation(options: KeeperOptions): Promise<AttestationKeeper> {
  const { nsm, publicKey, userData, renewMs, now, log } = options
  const clock = watchClock(options)
  const isOffTime = () => Math.abs(clock.skewMs()) > CLOCK_SKEW_MAX_MS
  let document = await attestAccount()
  let isStopped = false
  let timer: NodeJS.Timeout | undefined
  renewAfter(delayOf(document))
  const nonces: Calls = { running: 0 }
  const statements: Calls = { running: 0 }

  /** Each document shows whether the host paused the enclave, so each is compared. */
  async function attest(stated: Omit<AttestationInput, 'publicKey'>): Promise<KeptDocument> {
    const observed = clock.observe()
    const { timestampMs, ...described } = describeDocument(
      await nsm.attest({ publicKey, ...stated }),
    )
    observed(timestampMs)
    return described
  }

  async function attestAccount(): Promise<KeptDocument> {
    const described = await attest({ userData, nonce: null })
    if (isOffTime()) log('error', 'clock is off', { ahead_ms: Math.round(clock.skewMs()) })
    return described
  }

  function delayOf({ leafNotAfterMs }: KeptDocument): number {
    if (isOffTime()) return RETRY_MS
    return Math.max(DELAY_MIN_MS, Math.min(renewMs, leafNotAfterMs - 3 * LEAF_MARGIN_MS - now()))
  }

  /** Renews earlier if the clock seems off: after a suspend, the module shows that it is right. */
  function renewAfter(delayMs: number): void {
    if (isStopped) return
    const leftMs = delayMs - RETRY_MS
    const next = () => (leftMs > 0 && !isOffTime() ? renewAfter(leftMs) : renew())
    timer = setTimeout(next, Math.min(delayMs, RETRY_MS))
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
    renewAfter(delayMs)
  }

  async function attestFresh(
    stated: Omit<AttestationInput, 'publicKey'>,
    calls: Calls,
  ): Promise<string> {
    if (calls.running >= FRESH_CALLS_MAX)
      throw new CallFault('too_busy', 'Too many attestation documents at once.')
    calls.running++
    try {
      return (await attest(stated)).base64
    } catch (error) {
      log('error', 'fresh attestation failed', describeError(error))
      throw new CallFault('not_ready', 'The security module gives no attestation document now.')
    } finally {
      calls.running--
    }
  }

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

type Calls = { running: number }

/**
 * Reads the facts that the keeper needs from a document of the enclave's own module. It does not
 * check the document: relying parties verify it (verifyAttestation).
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
 * Maximum difference between the enclave's clock and the security module's clock, milliseconds.
 * Receipts state the enclave's time. A call to the module takes up to a tenth of a second.
 */
export const CLOCK_SKEW_MAX_MS = 5_000

type ClockWatch = {
  /**
   * Starts a measurement. Must be called before a call to the module. The returned function must be
   * called with the time that the module stated, Unix milliseconds.
   */
  observe(): (statedMs: number) => void
  /**
   * The enclave's clock is ahead by at least this many milliseconds (negative: behind). 0 before
   * the first measurement.
   */
  skewMs(): number
}

/**
 * Compares the clock `now` (Unix milliseconds) with each time that the module states. Between these
 * times, a monotonic clock shows immediately if `now` was changed. If the host pauses the enclave,
 * both clocks stop, and only the next measurement shows the pause.
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
      const [beforeMs, offsetMs] = [now(), offset()]
      return (statedMs) => {
        // The module stated its time between `beforeMs` and `afterMs`. Both are times of the clock
        // as it was at the start, so a clock that is set during the call counts as off.
        const afterMs = monotonic() + offsetMs
        const ahead = Math.max(0, beforeMs - statedMs)
        const behind = Math.max(0, statedMs - afterMs)
        observed = { skewMs: ahead - behind, offsetMs }
      }
    },
    skewMs: () => (observed === null ? 0 : observed.skewMs + offset() - observed.offsetMs),
  }
}
