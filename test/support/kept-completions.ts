import type { Affidavit } from './affidavit.ts'

/** A stored completion, as far as tests of clients look at it. */
export type KeptCompletion = {
  readonly hash: string
  readonly request: {
    readonly model: string
    readonly messages: unknown
    readonly stream: boolean | null
  }
  readonly response: { readonly usage: { readonly total_tokens: number } }
}

/**
 * Newest of the service's stored completions whose conversation has `text` in it; null when none
 * has.
 */
export async function findKept(
  service: Pick<Affidavit, 'url' | 'apiKey'>,
  text: string,
): Promise<KeptCompletion | null> {
  const reply = await fetch(`${service.url}/v1/verified/chat/completions?filter=mine`, {
    headers: { authorization: `Bearer ${service.apiKey}` },
  })
  const { completions } = (await reply.json()) as {
    readonly completions: readonly KeptCompletion[]
  }
  // Of encrypted calls nothing is kept: their request is null.
  return (
    completions.find((kept) => JSON.stringify(kept.request?.messages ?? null).includes(text)) ??
    null
  )
}
