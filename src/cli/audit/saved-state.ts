import { readFile } from 'node:fs/promises'
import { z } from 'zod'
import { decodeHex, encodeHex, equalBytes } from '../../../attestation/bytes.ts'
import { FormatError } from '../../../attestation/errors.ts'
import { appendLeaves, type Edge, rootOf } from '../../../attestation/merkle/edge.ts'
import { CliError, EXIT_CODES, orNull } from '../faults.ts'
import { writeFileWhole } from '../files.ts'
import { printable } from '../printable.ts'
import { FINDING_KINDS, type Finding, type FindingCode } from './findings.ts'
import type { ServedHead } from './gateway.ts'
import type { SignedHead } from './known-heads.ts'
import { openPayers, type WrittenPayers, WrittenPayersForm } from './payers.ts'
import type { TimeBracket } from './records.ts'

/** Shortest time between two writes on the way, milliseconds: each waits for the disk. */
const SAVE_INTERVAL_MS = 1_000

/** Where audits stand, log by log, over several runs. */
export type AuditState = Awaited<ReturnType<typeof openAuditState>>

/**
 * Opens the state in a file, which need not exist yet; null keeps none. `scope` is the digest of
 * what is audited: a state of another scope is refused, since it would hide what no run looked at.
 * Throws CliError.
 */
export async function openAuditState(
  path: string | null,
  { scope, now }: { readonly scope: string; readonly now: () => number },
) {
  const { logs, relayers } = path === null ? nothing() : await readState(path, scope)
  const payers = openPayers(relayers)
  let writtenAtMs = Number.NEGATIVE_INFINITY
  let isDirty = false

  /** Writes what is not written yet. */
  async function flush(): Promise<void> {
    if (path === null || !isDirty) return
    const written = Object.fromEntries(
      [...logs].map(([notary, saved]) => [notary, writeSavedLog(saved)]),
    )
    // When the payers of some logs were not noted, those of the others would pass for all.
    const noted = payers.isWhole ? { relayers: payers.write() } : {}
    const state = { format: FORMAT, version: 1, scope, logs: written, ...noted }
    await writeFileWhole(path, `${JSON.stringify(state)}\n`)
    isDirty = false
    writtenAtMs = now()
  }

  return {
    /** Who paid for the anchors of all logs so far; kept with them. */
    payers,
    find: (notary: string): SavedLog | null => logs.get(notary) ?? null,
    /** Of all logs that any run came to. */
    notaries: (): readonly string[] => [...logs.keys()],
    /** Keeps where a log stands; written at once, or within SAVE_INTERVAL_MS. Throws CliError. */
    async save(notary: string, saved: SavedLog): Promise<void> {
      logs.set(notary, saved)
      isDirty = true
      if (now() - writtenAtMs >= SAVE_INTERVAL_MS) await flush()
    },
    flush,
  }
}

const FORMAT = 'affidavit-audit-state'

type State = { readonly logs: Map<string, SavedLog>; readonly relayers: WrittenPayers | null }

const nothing = (): State => ({ logs: new Map(), relayers: {} })

const StateForm = z.strictObject({
  format: z.literal(FORMAT),
  version: z.literal(1),
  scope: z.string(),
  logs: z.record(z.string().regex(/^0x[0-9a-f]{40}$/), z.unknown()),
  relayers: WrittenPayersForm.optional(),
})

async function readState(path: string, scope: string): Promise<State> {
  const text = await readText(path)
  if (text === null) return nothing()
  const state = parseState(text, path)
  if (state.scope === scope) return state
  throw new CliError(
    `${printable(path)} is of an audit with other options (--from, --key, --rpc, --pcr, --release, --root, --configuration): use the same, or another file`,
    EXIT_CODES.usage,
  )
}

function parseState(text: string, path: string): State & { readonly scope: string } {
  try {
    const { scope, logs, relayers = null } = StateForm.parse(JSON.parse(text))
    const saved = Object.entries(logs).map(([notary, log]) => [notary, readSavedLog(log)] as const)
    return { scope, relayers, logs: new Map(saved) }
  } catch (fault) {
    if (!(fault instanceof SyntaxError) && !(fault instanceof z.ZodError)) throw fault
    const reason = fault instanceof z.ZodError ? fault.issues[0]?.message : 'no JSON'
    throw new CliError(
      `${printable(path)} is no state of an audit (${reason}): remove it to begin anew`,
      EXIT_CODES.usage,
    )
  }
}

/** Null when there is no such file. */
async function readText(path: string): Promise<string | null> {
  try {
    return await readFile(path, 'utf8')
  } catch (fault) {
    if (fault instanceof Error && 'code' in fault && fault.code === 'ENOENT') return null
    throw new CliError(
      `cannot read ${printable(path)}: ${fault instanceof Error ? fault.message : 'unknown fault'}`,
      EXIT_CODES.usage,
    )
  }
}

/** Where the audit of one log stands, for the next run to go on from. */
export type SavedLog = {
  /** The tree at `head`. */
  readonly edge: Edge
  /** The newest head that was compared with it; null when there is none yet. */
  readonly head: SignedHead | null
  /** Heads whose anchor was in no block yet. */
  readonly waiting: readonly ServedHead[]
  /** Newest block whose events were read; null: of none. */
  readonly eventBlock: number | null
  readonly bracket: TimeBracket
  readonly findings: readonly Finding[]
}

/** Gives what is saved of a log as JSON. */
function writeSavedLog({ edge, head, waiting, ...rest }: SavedLog): z.input<typeof SavedLogForm> {
  return {
    edge: { size: edge.size, hashes: edge.hashes.map(encodeHex) },
    head: head && writeHead(head),
    waiting: waiting.map((one) => ({
      ...writeHead(one),
      createdAt: one.createdAt,
      anchor: { ...one.anchor, replaces: [...one.anchor.replaces] },
    })),
    ...rest,
    findings: [...rest.findings],
  }
}

/** Gives a log as it was saved; its findings are those of earlier runs now. Throws ZodError. */
function readSavedLog(json: unknown): SavedLog {
  const saved = SavedLogForm.parse(json)
  return { ...saved, findings: saved.findings.map((finding) => ({ ...finding, isEarlier: true })) }
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
  severity: z.enum(['contradiction', 'missing', 'fault']),
  notary: z.string().nullable(),
  where: z.string(),
  message: z.string(),
  isEarlier: z.boolean(),
})

const SavedLogForm = z
  .strictObject({
    edge: z.object({ size: Count, hashes: z.array(Hash).max(53) }),
    head: HeadForm.nullable(),
    waiting: z.array(WaitingForm),
    eventBlock: Count.nullable(),
    bracket: z.object({ newestMs: z.number().nullable(), notBeforeMs: z.number().nullable() }),
    findings: z.array(FindingForm),
  })
  .refine(({ edge, head }) => isEdgeOf(edge, head), 'expected the edge of the head')

function isEdgeOf(edge: Edge, head: SignedHead | null): boolean {
  if (head === null) return edge.size === 0 && edge.hashes.length === 0
  const whole = orNull(() => appendLeaves(edge, []).edge, FormatError)
  return whole !== null && whole.size === head.size && equalBytes(rootOf(whole), head.root)
}

/** Hex without prefix in the file, bytes here. */
function bytesOf(length: number) {
  return z
    .string()
    .regex(new RegExp(`^[0-9a-f]{${2 * length}}$`))
    .transform((text) => decodeHex(text))
}

function writeHead({ size, root, signature }: SignedHead) {
  return { size, root: encodeHex(root), signature: encodeHex(signature) }
}
