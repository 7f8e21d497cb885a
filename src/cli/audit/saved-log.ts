import { z } from 'zod'
import { decodeHex, encodeHex, equalBytes } from '../../../attestation/bytes.ts'
import { FormatError } from '../../../attestation/errors.ts'
import { appendLeaves, type Edge, rootOf } from '../../../attestation/merkle/edge.ts'
import type { ServedHead } from './answers.ts'
import { FINDING_KINDS, type Finding, type FindingCode } from './findings.ts'
import type { SignedHead } from './signed-heads.ts'
import type { TimeBracket } from './timeline.ts'

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
export function writeSavedLog({ edge, head, waiting, ...rest }: SavedLog): z.input<typeof SavedLogForm> {
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
export function readSavedLog(json: unknown): SavedLog {
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
  try {
    const whole = appendLeaves(edge, []).edge
    return whole.size === head.size && equalBytes(rootOf(whole), head.root)
  } catch (fault) {
    if (fault instanceof FormatError) return false
    throw fault
  }
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
