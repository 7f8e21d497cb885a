import { writeCsvLine } from '../../runtime/csv.ts'
import { OwnGatewayFault } from '../kit/gateway.ts'
import { type Call, HISTORY_PATH, isEncrypted, readCalls, tokensOf, type Wanted } from './calls.ts'
import type { Session } from './session.ts'
import { anchorOf, type CallAnchors, readCallAnchors } from './use-call-anchors.ts'

/** Limits of one file: calls, calls with evidence, and (approximately) characters. */
const CALLS_MAX = 5_000
const EVIDENCE_MAX = 500
const LENGTH_MAX = 128 * 1024 * 1024
const PAGE_MAX = 100

export const EXPORTS = {
  records: { label: 'Records', hint: 'JSON Lines', extension: 'jsonl', type: 'application/jsonl' },
  table: { label: 'Table', hint: 'CSV', extension: 'csv', type: 'text/csv' },
  evidence: {
    label: 'Evidence',
    hint: 'JSON Lines, a call on each',
    extension: 'jsonl',
    type: 'application/jsonl',
  },
} as const
export type ExportKind = keyof typeof EXPORTS

export type Exported = {
  readonly text: string
  readonly count: number
  /** True if the file does not contain all calls that match. */
  readonly isCut: boolean
  /** Number of calls for which the gateway sent no evidence. */
  readonly missing: number
}

/** A loaded list, or a query. The export reads all results of the query. */
export type CallSource = { readonly calls: readonly Call[] } | { readonly wanted: Wanted }

/** Throws OwnGatewayFault, and the reason of an aborted `signal`. */
export async function exportCalls(
  session: Pick<Session, 'ask' | 'askText'>,
  {
    kind,
    source,
    anchors,
    signal,
    onCount,
  }: {
    readonly kind: ExportKind
    readonly source: CallSource
    readonly anchors: CallAnchors
    readonly signal: AbortSignal
    readonly onCount: (count: number) => void
  },
): Promise<Exported> {
  const parts: string[] = kind === 'table' ? [writeCsvLine(NAMES)] : []
  const countMax = kind === 'evidence' ? EVIDENCE_MAX : CALLS_MAX
  let count = 0
  let missing = 0
  let length = 0
  for await (const calls of pagesOf(session, source, signal)) {
    const known =
      kind === 'table' ? await readCallAnchors(calls, { known: anchors, signal }) : anchors
    for (const call of calls) {
      signal.throwIfAborted()
      if (count + missing >= countMax || length >= LENGTH_MAX)
        return { text: parts.join(''), count, isCut: true, missing }
      const part =
        kind === 'evidence'
          ? await readEvidenceLine(session, call)
          : kind === 'table'
            ? lineOf(call, known)
            : `${JSON.stringify(call)}\n`
      if (part === null) missing++
      else {
        parts.push(part)
        length += part.length
        onCount(++count)
      }
    }
  }
  return { text: parts.join(''), count, isCut: false, missing }
}

async function* pagesOf(
  session: Pick<Session, 'ask'>,
  source: CallSource,
  signal: AbortSignal,
): AsyncGenerator<readonly Call[]> {
  if ('calls' in source) {
    yield source.calls
    return
  }
  let cursor: string | null = null
  do {
    const { wanted } = source
    const page = await readCalls(session, { wanted, cursor, limit: PAGE_MAX, signal })
    yield page.items
    ;({ cursor } = page)
  } while (cursor !== null)
}

/** Returns evidence as one line: line ends between members become spaces. Null without evidence. */
async function readEvidenceLine(
  session: Pick<Session, 'askText'>,
  call: Call,
): Promise<string | null> {
  try {
    const text = await session.askText(`${HISTORY_PATH}/${call.hash}/evidence`)
    return `${text.trim().replace(/[\r\n]+/g, ' ')}\n`
  } catch (fault) {
    if (fault instanceof OwnGatewayFault && fault.status === 404) return null
    throw fault
  }
}

const NAMES = [
  'time',
  'hash',
  'model',
  'returned_model',
  'provider',
  'origin',
  'outcome',
  'encrypted',
  'dialect',
  'prompt_tokens',
  'completion_tokens',
  'notary',
  'leaf',
  'anchor_state',
  'anchor_transaction',
  'anchor_block',
] as const

function lineOf(call: Call, anchors: CallAnchors): string {
  const { receipt } = call
  const tokens = tokensOf(call)
  const anchor = anchorOf(anchors, call)
  return writeCsvLine([
    new Date(call.created_at * 1000).toISOString(),
    call.hash,
    receipt.model.requested,
    receipt.model.returned,
    receipt.provider.name,
    receipt.provider.origin,
    receipt.outcome,
    String(isEncrypted(call)),
    call.dialect,
    tokens?.prompt_tokens ?? null,
    tokens?.completion_tokens ?? null,
    anchor?.notary ?? null,
    receipt.index,
    anchor?.state ?? null,
    anchor?.txHash ?? call.tx_hash,
    anchor?.block ?? null,
  ])
}
