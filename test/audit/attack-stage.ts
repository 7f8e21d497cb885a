import { encodeHex } from '#attestation/bytes.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import { type BuiltLog, buildLog, createTestNotary } from '../support/audited-log.ts'
import { type Attack, describeHead } from '../support/equivocating-server.ts'
import { openStage, type Stage } from './stage.ts'

export const BATCHES = [1, 4, 2, 7, 3]
/** A head in the middle of a page, and a leaf in the middle of a head. */
export const MIDDLE_HEAD = 3
export const MIDDLE_LEAF = 9

export let stage: Stage
export let log: BuiltLog
/** The same notary's other history, which parts from the first after its second head. */
export let other: BuiltLog
/** A log of another notary. */
export let foreign: BuiltLog
export let trust: readonly string[]

/** Sets the stage and the logs up. */
export async function openAttackStage(): Promise<void> {
  stage = await openStage()
  const notary = await createTestNotary()
  const anchoring = { chain: null, nonce: 0 }
  const attestedSizes = [0, 5, 12, 17]
  log = await buildLog(notary, { batches: BATCHES, anchoring, attestedSizes })
  const batches = BATCHES.slice(2)
  other = await buildLog(notary, {
    batches,
    salt: 'other',
    anchoring,
    attestedSizes,
    after: { log, heads: 2 },
  })
  const few = { batches: [1, 4], attestedSizes: [0, 1, 5] }
  foreign = await buildLog(await createTestNotary(), { ...few, anchoring })
  trust = await stage.trust(log)
}

/** Changes one entry of an array in the answers of a resource. */
export const changeEntry =
  (
    resource: string,
    array: string,
    isMeant: (entry: JsonObject) => boolean,
    change: (entry: JsonObject) => Json | undefined,
  ): Attack =>
  (question, honest) => {
    const answer = honest()
    const entries = answer[array]
    if (question.resource !== resource || !isJsonArray(entries)) return answer
    const changed = entries.flatMap((entry) => {
      const value = isJsonObject(entry) && isMeant(entry) ? change(entry) : entry
      return value === undefined ? [] : [value]
    })
    return { ...answer, [array]: changed }
  }

export const changeHead = (at: number, change: (head: JsonObject) => Json | undefined): Attack =>
  changeEntry('log/heads', 'heads', (head) => head.size === log.heads[at]?.size, change)

export const changeAttestation = (
  size: number,
  change: (attestation: JsonObject) => Json | undefined,
): Attack =>
  changeEntry('log/heads', 'attestations', (attestation) => attestation.size === size, change)

export const changeRecord = (
  index: number,
  change: (record: JsonObject) => Json | undefined,
): Attack =>
  changeEntry(
    'log/records',
    'records',
    (record) => (record.receipt as JsonObject).index === index,
    change,
  )

export const changeAnswer =
  (resource: string, change: (answer: JsonObject) => JsonObject): Attack =>
  (question, honest) =>
    question.resource === resource ? change(honest()) : honest()

/** Changes what the list of logs says of the log. */
export const changeListed = (change: JsonObject): Attack =>
  changeAnswer('logs', ({ logs }) => ({
    logs: [{ ...(logs as readonly JsonObject[])[0], ...change }],
    cursor: null,
  }))

/** Answers with the log's leaves after a change. */
export const changeLeaves =
  (change: (leaves: readonly Uint8Array[]) => readonly Uint8Array[]): Attack =>
  (question, honest) => {
    const answer = honest()
    if (question.resource !== 'log/leaves') return answer
    const leaves = change(log.leaves).map(encodeHex)
    return { ...answer, leaves: leaves.slice(Number(answer.start), Number(answer.end)) }
  }

/** Answers of one resource, from the so manieth question on, are of the other history. */
export const switchHistory =
  (resource: string, from: number): Attack =>
  (question, honest) =>
    question.resource === resource && question.of >= from ? honest(other) : honest()

export const headOf = (at: number) => {
  const head = log.heads[at]
  if (head === undefined) throw new Error(`no head ${at}`)
  return describeHead(head)
}

export type Row = readonly [name: string, codes: readonly string[], attack: () => Attack]
