import type { RecordListReply, StoredRecordReply } from '../../verified/records/record-replies.ts'
import { OwnGatewayFault } from '../kit/gateway.ts'
import type { Session } from './session.ts'
import type { Page } from './use-pages.ts'

export const HISTORY_PATH = '/v1/verified/chat/completions'

/** A stored call, in the form of the history. */
export type Call = StoredRecordReply

/** Which calls to list: those that match a query, or the call with this hash. */
export type Wanted =
  | { readonly kind: 'query'; readonly query: string }
  | { readonly kind: 'hash'; readonly hash: string }

export const ALL_CALLS: Wanted = { kind: 'query', query: '' }

/** Reads one page of the wanted calls. */
export async function readCalls(
  session: Pick<Session, 'ask'>,
  {
    wanted,
    cursor,
    limit,
    signal,
  }: {
    readonly wanted: Wanted
    readonly cursor: string | null
    readonly limit: number
    readonly signal: AbortSignal
  },
): Promise<Page<Call>> {
  if (wanted.kind === 'hash') return { items: await findCall(session, wanted.hash), cursor: null }
  const more = cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`
  const path = `${HISTORY_PATH}?limit=${limit}${wanted.query}${more}`
  const { completions, ...page } = await session.ask<RecordListReply>(path, { signal })
  return { items: completions, cursor: page.cursor }
}

async function findCall(session: Pick<Session, 'ask'>, hash: string): Promise<readonly Call[]> {
  try {
    return [await session.ask<Call>(`${HISTORY_PATH}/${hash}`)]
  } catch (fault) {
    if (fault instanceof OwnGatewayFault && fault.status === 404) return []
    throw fault
  }
}

/** Returns the first digits of a hash, by which people recognise a call. */
export function shortHash({ hash }: Pick<Call, 'hash'>): string {
  return hash.slice(0, 12)
}

/** True if the call was encrypted. Only the caller and the enclave could read it. */
export function isEncrypted({ receipt }: Call): boolean {
  return receipt.version !== 1 && receipt.encrypted
}

/** Returns the text of the last message, or null when the service does not return it. */
export function questionOf({ request }: Call): string | null {
  return request === null ? null : textOf(request.messages.at(-1)?.content)
}

/**
 * Returns the text of the first answer or of the refusal, or null when the service does not return
 * it.
 */
export function answerOf({ response }: Call): string | null {
  if (response === null) return null
  const message: unknown = response.choices[0]?.message
  const { content, refusal } = Object(message) as {
    readonly content?: unknown
    readonly refusal?: unknown
  }
  return textOf(content) || textOf(refusal)
}

/** Returns the tokens of question and answer, or null when the provider did not state them. */
export function tokensOf({
  usage,
  response,
}: Call): { readonly prompt_tokens: number; readonly completion_tokens: number } | null {
  return usage ?? response?.usage ?? null
}

/**
 * Returns the text of a message, or the texts of its parts. A part that is not text is shown by its
 * type.
 */
function textOf(content: unknown): string {
  if (typeof content === 'string') return content
  if (!Array.isArray(content)) return ''
  return content
    .map((part: unknown) => {
      const { type, text } = Object(part) as { readonly type?: unknown; readonly text?: unknown }
      return typeof text === 'string' ? text : `[${typeof type === 'string' ? type : 'part'}]`
    })
    .join(' ')
}
