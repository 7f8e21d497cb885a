import type { Affidavit } from './affidavit.ts'

/** A stored completion, with the members that tests of clients use. */
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
 * The newest stored completion of the service whose conversation contains `text`; null when there
 * is no such completion.
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
  // Encrypted calls are not stored: their request is null.
  return (
    completions.find((kept) => JSON.stringify(kept.request?.messages ?? null).includes(text)) ??
    null
  )
}
