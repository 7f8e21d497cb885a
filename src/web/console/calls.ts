import { type TokenUsage, usageOf } from '#attestation/dialects/usage.ts'
import { isJsonObject, type JsonObject } from '#attestation/json/value.ts'
import { TURNS } from '#attestation/session/turns.ts'
import type { RecordReply } from '../../verified/records/record-replies.ts'
import { OwnGatewayFault } from '../kit/gateway.ts'
import type { Session } from './session.ts'
import type { Page } from './use-pages.ts'

export const HISTORY_PATH = '/v1/verified/records'

export type Call = Omit<RecordReply, 'request' | 'response'> & {
  readonly request: JsonObject | null
  readonly response: JsonObject | null
}

export type Wanted =
  | { readonly kind: 'query'; readonly query: string }
  | { readonly kind: 'hash'; readonly hash: string }

export const ALL_CALLS: Wanted = { kind: 'query', query: '' }

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
  const { completions, ...page } = await session.ask<{
    readonly completions: readonly Call[]
    readonly cursor: string | null
  }>(path, { signal })
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

/** The first digits, by which people recognise a call. */
export function shortHash({ hash }: Pick<Call, 'hash'>): string {
  return hash.slice(0, 12)
}

/** True if only the caller and the enclave could read the call. */
export function isEncrypted({ receipt }: Call): boolean {
  return receipt.encrypted
}

/** The last text of the user. Null when the service does not return it. */
export function questionOf({ dialect, request }: Call): string | null {
  if (request === null) return null
  const body = dialect === 'chat' ? request : request.body
  const items = isJsonObject(body) ? TURNS[dialect].itemsOf(body) : []
  const asked = items.findLast(({ step: { kind, name } }) => kind === 'asked' && name === 'user')
  return asked?.step.text ?? ''
}

/** Null when the provider did not state the tokens. */
export function tokensOf({ dialect, usage, response }: Call): TokenUsage | null {
  return usage ?? (response && usageOf(dialect, response))
}
