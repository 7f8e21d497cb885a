import { FUTURE_SKEW_MS_DEFAULT } from '../../../attestation/nitro/policy.ts'
import type { Receipt } from '../../../attestation/receipt.ts'
import type { Ledger } from './ledger.ts'

/** Between which moments, by head attestations, leaves were appended: Unix milliseconds. */
export type TimeBracket = {
  /** The newest time at which a record so far says it finished. */
  readonly newestMs: number | null
  /** Leaves from now on were appended after this. */
  readonly notBeforeMs: number | null
}

/**
 * Compares the times that records say with those at which the enclave attested its log. The enclave's clock is its host's,
 * the attestation's is its security module's: a minute between them is no fault.
 */
export type Timeline = {
  /** Records in the order of their leaves. */
  passRecord(receipt: Receipt): void
  /** The enclave attested that the leaves so far were there, and no more, at this time. */
  passAttestation(timestampMs: number): void
  bracket(): TimeBracket
}

/** Gives a timeline that goes on from `start`. */
export function createTimeline(start: TimeBracket, ledger: Ledger): Timeline {
  let { newestMs, notBeforeMs } = start
  return {
    passRecord({ index, finished_at: finishedMs }) {
      if (notBeforeMs !== null && finishedMs < notBeforeMs - FUTURE_SKEW_MS_DEFAULT)
        ledger.find('record_time', {
          where: `record ${index}`,
          message: `finished ${isoOf(finishedMs)}, it says, but was appended after ${isoOf(notBeforeMs)}, as the enclave attested`,
        })
      newestMs = Math.max(newestMs ?? 0, finishedMs)
    },
    passAttestation(timestampMs) {
      if (newestMs !== null && newestMs > timestampMs + FUTURE_SKEW_MS_DEFAULT)
        ledger.find('record_time', {
          where: `attestation of ${isoOf(timestampMs)}`,
          message: `a record says it finished ${isoOf(newestMs)}, after the enclave attested that it was there`,
        })
      notBeforeMs = Math.max(notBeforeMs ?? 0, timestampMs)
    },
    bracket: () => ({ newestMs, notBeforeMs }),
  }
}

/** A time of the log, in words; also one that no date can be. */
export function isoOf(timeMs: number): string {
  const time = new Date(timeMs)
  return Number.isNaN(time.getTime()) ? `${timeMs} ms` : time.toISOString()
}
