import type { PointRecovery } from '#attestation/account.ts'
import { decodeHex, encodeHex, equalBytes } from '#attestation/bytes.ts'
import { DIALECTS } from '#attestation/dialects/dialects.ts'
import { statedAbsence } from '#attestation/erasure.ts'
import { FormatError } from '#attestation/errors.ts'
import { expectsCode } from '#attestation/evidence/policy.ts'
import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberAt,
  memberOf,
} from '#attestation/json/value.ts'
import { hashReceipt } from '#attestation/log-proof.ts'
import { type LogProof, parseLogProof } from '#attestation/log-proof-form.ts'
import { FUTURE_SKEW_MS_DEFAULT } from '#attestation/nitro/policy.ts'
import { orNull } from '#attestation/or-null.ts'
import { parseReceipt, type Receipt } from '#attestation/receipt.ts'
import { nameRelease } from '#attestation/release/release-name.ts'
import { isoOf } from '#attestation/report/printable.ts'
import { verifyRecord } from '#attestation/verify-record.ts'
import type { AuditScope, LogContext } from './audit-context.ts'
import { describeHead, isSigned, reportEquivocation } from './compare-heads.ts'
import { createDocumentJudge, type DocumentVerdict } from './documents.ts'
import type { Ledger } from './findings.ts'
import type { ServedHead } from './gateway.ts'
import { GatewayFault } from './gateway-http.ts'
import { readAhead } from './read-ahead.ts'
import { createMemory } from './remember.ts'

export type RecordAudit = ReturnType<typeof createRecordAudit>

/**
 * `leafHash` is null if the list of leaves could not be read. `head` is the first head that covers
 * the record.
 */
type RecordPlace = {
  readonly index: number
  readonly leafHash: Uint8Array | null
  readonly head: ServedHead
}

/** The checks of times begin with the limits in `bracket`. */
export function createRecordAudit(context: LogContext, bracket: TimeBracket) {
  const { ledger, scope } = context
  const documents = createDocumentJudge(context)
  const recover = rememberRecoveries(context.recover)
  const timeline = createTimeline(bracket, ledger)
  const gaps = createGaps(ledger, scope)
  /** The document of the last record. `digest`: SHA-256, hex. */
  let newestDocument: { readonly index: number; readonly digest: string } | null = null

  async function checkDocument(record: JsonObject, receipt: Receipt): Promise<void> {
    const where = `record ${receipt.index}`
    const verdict = await documents.judge(String(memberOf(record, 'attestation')))
    newestDocument = { index: receipt.index, digest: verdict.digest }
    for (const { code, message } of verdict.faults) ledger.find(code, { where, message })
    if (!isWithin(receipt.finished_at, verdict))
      ledger.find('attestation_time', {
        where,
        message: `finished ${isoOf(receipt.finished_at)}, when its attestation document was not valid`,
      })
    if (verdict.faults.length > 0) return
    ledger.pass('attestation documents')
    if (expectsCode(scope.policy)) ledger.pass('measurements')
    if (verdict.release) ledger.remark('measurements', nameRelease(verdict.release))
  }

  /** Returns true if the record is consistent. */
  function reportFaults(record: Json, where: string): boolean {
    const report = verifyRecord(record, { recover, decodeAttestation: documents.decode })
    const failed = report.checks.filter(({ outcome }) => outcome === 'failed')
    const swapped = failed.find(({ name }) => name === 'attestation key')
    if (swapped !== undefined)
      ledger.find('attestation_swapped', { where, message: swapped.detail })
    const others = failed.filter((check) => check !== swapped)
    if (others.length > 0)
      ledger.find('record_invalid', {
        where,
        message: others.map(({ name, detail }) => `${name}: ${detail}`).join('; '),
      })
    return failed.length === 0
  }

  return {
    timeline,
    async check(record: Json | null, { index, leafHash, head }: RecordPlace): Promise<void> {
      if (record === null) {
        gaps.miss(index)
        return
      }
      gaps.end()
      const where = `record ${index}`
      const isWhole = reportFaults(record, where)
      const parts = readParts(record)
      if (parts === null) return
      const isBound = reportMismatches(parts, { ...context, where, leafHash, head })
      if (isWhole && isBound) {
        ledger.pass('records')
        recordAbsence(record, ledger)
        auditRequest(parts, context)
      }
      timeline.passRecord(parts.receipt)
      if (isWhole) await checkDocument(parts.record, parts.receipt)
    },
    newestDocument: () => newestDocument,
    /** Reports the gap if records at the end are missing. */
    finish(): void {
      gaps.end()
      explainUncompared(context)
    },
  }
}

/**
 * Counts the record if the gateway states that the content was erased. If the gateway states that
 * it cannot decrypt the content, records that a check was skipped.
 */
function recordAbsence(record: Json, ledger: Ledger): void {
  const absence = statedAbsence(record)
  if (absence?.kind === 'erased')
    ledger.tally('records', 'of them have erased content, as the gateway states')
  if (absence?.kind === 'withheld')
    ledger.skip('records', `the gateway cannot decrypt the content of some (${absence.code})`)
}

/**
 * Looks for the request in other logs. Each enclave counts attempts from 1, also after a restart.
 * Without a nonce, equal requests can be different calls.
 */
function auditRequest(
  { record, receipt }: Parts,
  { requests, log: { notary }, ledger }: LogContext,
): void {
  const { request_hash: hash, index } = receipt
  const request = memberOf(record, 'request')
  const isShown = isJsonObject(request)
  const dialect = DIALECTS[receipt.dialect]
  const demands = isShown ? orNull(() => dialect.demandsOf(request), FormatError) : null
  if (isShown && demands?.nonce === undefined) return
  const first = requests.record(hash, { notary, index })
  if (first === null) ledger.pass('requests in one log')
  else
    ledger.find('request_in_two_logs', {
      where: `record ${index}`,
      message:
        `the request ${hash} has record ${index} of ${notary} and record ${first.index} of ` +
        `${first.notary}. Either its caller sent it again, after an error or to another enclave, or ` +
        'the gateway gave it to two enclaves and chose an answer. Only the caller knows how often it ' +
        `was sent${isShown ? '' : '. Its content is not shown: equal requests without a nonce can be different calls'}`,
    })
}

function explainUncompared({ requests, scope, ledger }: LogContext): void {
  const skip = (reason: string) => ledger.skip('requests in one log', reason)
  if (requests.isCut())
    skip('only the latest requests are remembered, or an older version wrote the state file')
  if (scope.from > 0) skip(`records before leaf ${scope.from} were left out (--from)`)
  if (scope.ownRecordsOnly) skip('the key can read only its own records')
}

/** Each gap of records that the gateway does not serve is one finding. */
function createGaps(ledger: Ledger, { ownRecordsOnly }: AuditScope) {
  let gap: { readonly start: number; end: number } | null = null
  return {
    miss(index: number): void {
      if (gap === null) gap = { start: index, end: index }
      gap.end = index
    },
    end(): void {
      if (gap === null) return
      const { start, end } = gap
      gap = null
      const where = start === end ? `record ${start}` : `records ${start} to ${end}`
      if (ownRecordsOnly) ledger.skip('records', 'the key can read only its own records')
      else
        ledger.find('record_missing', {
          where,
          message: `${where}: leaves of the log without a record`,
        })
    },
  }
}

type Compared = Omit<RecordPlace, 'index'> &
  Pick<LogContext, 'log' | 'ledger' | 'recover'> & { readonly where: string }

type Parts = NonNullable<ReturnType<typeof readParts>>

function readParts(record: Json) {
  if (!isJsonObject(record)) return null
  const read = () => ({
    record,
    receipt: parseReceipt(memberOf(record, 'receipt') ?? null),
    proof: parseLogProof(memberOf(record, 'log') ?? null),
  })
  return orNull(read, FormatError)
}

/** Reports differences. Returns true if it finds none. */
function reportMismatches({ record, receipt, proof }: Parts, compared: Compared): boolean {
  const { where, leafHash, head, log, ledger } = compared
  const faults: string[] = []
  if (leafHash !== null && !equalBytes(hashReceipt(receipt), leafHash))
    faults.push('its receipt is not the leaf')
  if (memberOf(record, 'public_key') !== `0x${encodeHex(log.publicKey)}`)
    faults.push('it names another key')
  if (proof.chain_id !== log.domain.chainId || proof.contract !== log.domain.contract)
    faults.push('it names another chain or contract')
  if (faults.length > 0) ledger.find('record_mismatch', { where, message: faults.join('; ') })
  const isSameHead = proof.size === head.size && proof.root === encodeHex(head.root)
  if (!isSameHead) reportHead(proof, compared)
  const fault = isSameHead ? describeAnchorFault(record, head) : null
  if (fault !== null) ledger.find('record_anchor_mismatch', { where, message: fault })
  return faults.length === 0 && isSameHead && fault === null
}

/** Returns why the record does not name its head's transactions. Null if it names them. */
function describeAnchorFault(record: JsonObject, { anchor }: ServedHead): string | null {
  const [first = anchor.txHash] = anchor.replaces
  if (memberOf(record, 'tx_hash') !== first)
    return (
      `expected tx_hash to be the ${anchor.replaces.length > 0 ? 'first ' : ''}transaction of ` +
      `its head, ${first}`
    )
  const again = memberOf(record, 'reanchored')
  const isNamed = first === anchor.txHash || (isJsonArray(again) && again.includes(anchor.txHash))
  return isNamed
    ? null
    : `expected reanchored to name the transaction of its head, ${anchor.txHash}`
}

function reportHead(proof: LogProof, compared: Compared): void {
  const { where, head, ledger } = compared
  const own = {
    size: proof.size,
    root: decodeHex(proof.root),
    signature: decodeHex(proof.signature),
  }
  const isContradiction = own.size === head.size && isSigned(own, compared)
  if (isContradiction) reportEquivocation(ledger, where, [describeHead(own), describeHead(head)])
  else
    ledger.find('record_head_unserved', {
      where,
      message: `expected the head that covers its leaf, of size ${head.size}, got a head of size ${own.size}`,
    })
}

function isWithin(timeMs: number, { validMs }: DocumentVerdict): boolean {
  return validMs === null || (timeMs >= validMs.from && timeMs <= validMs.to)
}

export type RecordReader = ReturnType<typeof openRecordReader>

type Entry = { readonly index: number; readonly record: Json }

/** Reads records from the leaf `start` on. Keeps two pages in memory. */
export function openRecordReader(
  { gateway, log: { notary, size: end } }: LogContext,
  start: number,
) {
  const pages = readAhead(readPages())
  let entries: Entry[] = []
  let isOver = false

  async function* readPages(): AsyncGenerator<Entry[]> {
    for (let position: number | null = start; position !== null && position < end; ) {
      const { records, next } = await gateway.fetchRecords(notary, position)
      yield indexRecords(records, { from: position, to: next ?? Number.POSITIVE_INFINITY, notary })
      position = next
    }
  }

  return {
    /** Returns null if the gateway does not serve the record. Indexes must ascend. */
    async take(index: number): Promise<Json | null> {
      while (!isOver && (entries[0]?.index ?? -1) < index) {
        entries.shift()
        if (entries.length > 0) continue
        const page = await pages.next()
        isOver = page.done === true
        entries = page.done === true ? [] : page.value
      }
      const [first] = entries
      if (first?.index !== index) return null
      entries.shift()
      return first.record
    },
    close: async (): Promise<void> => void (await pages.return(undefined)),
  }
}

/** The indexes that records claim must ascend and lie within the page. */
function indexRecords(
  records: readonly Json[],
  { from, to, notary }: { readonly from: number; readonly to: number; readonly notary: string },
): Entry[] {
  let least = from
  return records.map((record) => {
    const index = memberAt(record, 'receipt', 'index')
    if (typeof index !== 'number' || !Number.isSafeInteger(index) || index < least || index >= to)
      throw new GatewayFault('answer_invalid', {
        where: `/v1/log/${notary}/records?start=${from}`,
        message:
          `expected a record of a leaf from ${least} on, got leaf ` +
          `${typeof index === 'number' ? index : 'none'}`,
      })
    least = index + 1
    return { index, record }
  })
}

/**
 * A small number suffices, because consecutive records under one head have the same head signature.
 */
const RECOVERIES_MAX = 64

function rememberRecoveries(recover: PointRecovery): PointRecovery {
  const known = createMemory<Uint8Array>(RECOVERIES_MAX)
  return (signed) => {
    const key = `${encodeHex(signed.digest)}${encodeHex(signed.compact)}${signed.recoveryBit}`
    return known(key, () => recover(signed))
  }
}

/** Limits for the time at which leaves were appended, Unix milliseconds. */
type TimeBracket = {
  /** The latest finishing time in the records so far. */
  readonly newestMs: number | null
  /** All later leaves were appended after this time. */
  readonly notBeforeMs: number | null
}

/**
 * The host's clock sets the times in records. The security module sets the times in attestations. A
 * difference of one minute is accepted.
 */
function createTimeline(start: TimeBracket, ledger: Ledger) {
  let { newestMs, notBeforeMs } = start
  return {
    /** Records must be passed in the order of their leaves. */
    passRecord({ index, finished_at: finishedMs }: Receipt): void {
      if (notBeforeMs !== null && finishedMs < notBeforeMs - FUTURE_SKEW_MS_DEFAULT)
        ledger.find('record_time', {
          where: `record ${index}`,
          message:
            `the record says that it finished ${isoOf(finishedMs)}, but it was appended after ` +
            `${isoOf(notBeforeMs)}, as the enclave attested`,
        })
      newestMs = Math.max(newestMs ?? 0, finishedMs)
    },
    /** Records that the enclave attested a log with exactly the passed leaves at this time. */
    passAttestation(timestampMs: number): void {
      if (newestMs !== null && newestMs > timestampMs + FUTURE_SKEW_MS_DEFAULT)
        ledger.find('record_time', {
          where: `attestation of ${isoOf(timestampMs)}`,
          message:
            `a record says that it finished ${isoOf(newestMs)}, but the enclave attested it ` +
            'before that time',
        })
      notBeforeMs = Math.max(notBeforeMs ?? 0, timestampMs)
    },
    bracket: (): TimeBracket => ({ newestMs, notBeforeMs }),
  }
}
