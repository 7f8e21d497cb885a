import { z } from 'zod'
import { decodeHex, encodeHex, equalBytes } from '#attestation/bytes.ts'
import { FormatError } from '#attestation/errors.ts'
import { appendLeaves, type Edge, rootOf } from '#attestation/merkle/edge.ts'
import { orNull } from '#attestation/or-null.ts'
import type { TreeHead } from '#attestation/tree-head.ts'
import { FINDING_KINDS, type FindingCode } from './findings.ts'
import { openPayers, type WrittenPayers, WrittenPayersForm } from './payers.ts'
import {
  openRecordedRequests,
  type WrittenRequests,
  WrittenRequestsForm,
} from './recorded-requests.ts'

/** Saves are rare, because each save waits for the disk. */
const SAVE_INTERVAL_MS = 1_000

type StateStore = {
  /** Null: no state was written yet. */
  read(): Promise<string | null>
  /** If the write fails, the old text stays unchanged. */
  write(text: string): Promise<void>
}

/**
 * The stored state is malformed, or an audit with another scope stored it. Such an audit may have
 * left out parts of this scope. The message is the reason.
 */
export class UnusableState extends Error {
  override readonly name = 'UnusableState'
  readonly code: 'malformed' | 'other_scope'

  constructor(code: UnusableState['code'], message: string) {
    super(message)
    this.code = code
  }
}

export type AuditState = Awaited<ReturnType<typeof openAuditState>>

/**
 * A null store keeps nothing. `scope`: digest of the audit's scope. Throws UnusableState, and the
 * errors of the store.
 */
export async function openAuditState(
  store: StateStore | null,
  { scope, now }: { readonly scope: string; readonly now: () => number },
) {
  const text = (await store?.read()) ?? null
  const {
    logs,
    relayers,
    requests: written,
  }: State = text === null ? { logs: new Map(), relayers: {} } : parseState(text, scope)
  const payers = openPayers(relayers)
  const requests = openRecordedRequests(written)
  let writtenAtMs = Number.NEGATIVE_INFINITY
  let isDirty = false

  async function flush(): Promise<void> {
    if (store === null || !isDirty) return
    const written = Object.fromEntries(
      [...logs].map(([notary, saved]) => [notary, SavedLogForm.encode(saved)]),
    )
    // Incomplete payers are not written: the list would look complete.
    const paid = payers.isWhole ? { relayers: payers.write() } : {}
    const recorded = WrittenRequestsForm.encode(requests.write())
    const state = { format: FORMAT, version: 1, scope, logs: written, ...paid, requests: recorded }
    await store.write(`${JSON.stringify(state)}\n`)
    isDirty = false
    writtenAtMs = now()
  }

  return {
    payers,
    requests,
    find: (notary: string): SavedLog | null => logs.get(notary) ?? null,
    /** The notaries of all logs that any run audited. */
    notaries: (): readonly string[] => [...logs.keys()],
    /** Writes the state if the last write was long enough ago. Otherwise a later call writes it. */
    async save(notary: string, saved: SavedLog): Promise<void> {
      logs.set(notary, saved)
      isDirty = true
      if (now() - writtenAtMs >= SAVE_INTERVAL_MS) await flush()
    },
    flush,
  }
}

const FORMAT = 'affidavit-audit-state'

type State = {
  readonly logs: Map<string, SavedLog>
  readonly relayers: WrittenPayers | null
  /** Undefined before the first run. */
  readonly requests?: WrittenRequests | null
}

const StateForm = z.strictObject({
  format: z.literal(FORMAT),
  version: z.literal(1),
  scope: z.string(),
  logs: z.record(z.string().regex(/^0x[0-9a-f]{40}$/), z.unknown()),
  relayers: WrittenPayersForm.optional(),
  requests: WrittenRequestsForm.optional(),
})

function parseState(text: string, scope: string): State {
  try {
    const { logs, relayers = null, requests = null, ...written } = StateForm.parse(JSON.parse(text))
    const saved = Object.entries(logs).map(([notary, log]) => [notary, readSavedLog(log)] as const)
    if (written.scope === scope) return { relayers, requests, logs: new Map(saved) }
  } catch (fault) {
    if (fault instanceof SyntaxError) throw new UnusableState('malformed', 'it is not JSON')
    if (!(fault instanceof z.ZodError)) throw fault
    throw new UnusableState('malformed', fault.issues[0]?.message ?? 'it has another form')
  }
  throw new UnusableState('other_scope', 'it was written by an audit with another scope')
}

const Count = z.int().min(0).max(Number.MAX_SAFE_INTEGER)
const Hash = bytesOf(32)
const SignatureBytes = bytesOf(65)
const HeadForm = z.object({ size: Count, root: Hash, signature: SignatureBytes })
const TxHash = z.string().regex(/^0x[0-9a-f]{64}$/)

const WaitingForm = HeadForm.extend({
  createdAt: Count,
  anchor: z.object({
    txHash: TxHash,
    replaces: z.array(TxHash).default([]),
    state: z.enum(['pending', 'mined', 'confirmed', 'reverted']),
    blockNumber: Count.nullable(),
    blockHash: TxHash.nullable(),
  }),
})

const FindingForm = z.object({
  code: z.enum(Object.keys(FINDING_KINDS) as [FindingCode, ...FindingCode[]]),
  severity: z.enum(['contradiction', 'missing', 'repetition', 'fault']),
  notary: z.string().nullable(),
  where: z.string(),
  message: z.string(),
  isEarlier: z.boolean(),
})

const SavedLogForm = z
  .strictObject({
    /** The tree's edge at the size of `head`. */
    edge: z.object({ size: Count, hashes: z.array(Hash).max(53).readonly() }),
    /** The newest head that was compared with the tree. Null before the first head. */
    head: HeadForm.nullable(),
    /** Heads whose anchors were not in a block yet. */
    waiting: z.array(WaitingForm).readonly(),
    /** The next run begins shortly before this block. Null: no events were read. */
    eventBlock: Count.nullable(),
    /** Blocks in which earlier runs skipped events. */
    skippedBlocks: z.object({ from: Count, to: Count }).nullable().optional(),
    bracket: z.object({ newestMs: z.number().nullable(), notBeforeMs: z.number().nullable() }),
    findings: z.array(FindingForm).readonly(),
  })
  .refine(({ edge, head }) => isEdgeOf(edge, head), 'expected the edge of the head')

export type SavedLog = Readonly<z.infer<typeof SavedLogForm>>

/** Both ends are included. */
export type Blocks = NonNullable<SavedLog['skippedBlocks']>

/** Marks the findings as made by an earlier run. Throws ZodError. */
function readSavedLog(json: unknown): SavedLog {
  const saved = SavedLogForm.parse(json)
  return { ...saved, findings: saved.findings.map((finding) => ({ ...finding, isEarlier: true })) }
}

function isEdgeOf(edge: Edge, head: TreeHead | null): boolean {
  if (head === null) return edge.size === 0 && edge.hashes.length === 0
  const whole = orNull(() => appendLeaves(edge, []).edge, FormatError)
  return whole !== null && whole.size === head.size && equalBytes(rootOf(whole), head.root)
}

/** In the file: hex without a prefix. In memory: bytes. */
function bytesOf(length: number) {
  const text = z.string().regex(new RegExp(`^[0-9a-f]{${2 * length}}$`))
  return z.codec(text, z.custom<Uint8Array>(), { decode: decodeHex, encode: encodeHex })
}
