import type { SentCall } from './check-answer.ts'
import { isKeyConfigProblem, type SealedCall, sealCall } from './encryption.ts'
import type { CallTarget } from './encryption-keys.ts'
import { errorWordsOf, isRedirect, leavable, readAtMost } from './gateway.ts'
import type { Notaries } from './notaries.ts'
import type { DraftCall, PreparedCall } from './prepare-call.ts'
import { countSend, latestNotary } from './sends.ts'

const ERROR_BYTES_MAX = 64 * 1024

export type SentResponse = {
  readonly response: Response
  readonly call: SentCall
  /** True if no enclave took the call, so that it may be sent to another one a moment later. */
  readonly isUntaken: boolean
}

/**
 * Sends a call to one enclave. If the gateway states that this enclave cannot take it, the call is
 * sent once more, to another enclave if necessary. The statement can be false, so the call may have
 * been made. If the second enclave cannot take it either, the caller's client receives 503.
 */
export async function sendCall(
  send: (more: RequestInit) => Promise<Response>,
  parts: {
    readonly draft: DraftCall
    readonly credential: string | null
    readonly signal: AbortSignal
    readonly options: {
      readonly notaries: Pick<Notaries, 'target' | 'isExpected'>
      readonly encrypt: boolean
      /** Largest answer, bytes. */
      readonly bytesMax: number
    }
  },
): Promise<SentResponse> {
  const { draft, credential, signal, options } = parts
  const { notaries, encrypt } = options
  const { sends } = draft
  let gone: CallTarget | null = null
  for (;;) {
    const wanted = { only: draft.notary, latest: latestNotary(sends), gone, encrypt }
    const target: CallTarget = await leavable(notaries.target(wanted), signal)
    const { call, ...sent } = draft.to(target.notary)
    const sealed = await seal(target, { ...sent, credential })
    // This enclave's release may have been revoked since it was chosen.
    if (!notaries.isExpected(target.notary)) continue
    const response = await send(sealed).catch((fault: unknown) => {
      countSend(sends, target.notary, true)
      throw fault
    })
    const isTaken = !(await isElsewhere(response))
    countSend(sends, target.notary, isTaken)
    if (!isTaken) {
      if (draft.notary !== null || draft.isKeyed) return { response, call, isUntaken: false }
      if (gone !== null) return { response: retryLater(response), call, isUntaken: true }
      void response.body?.cancel().catch(() => undefined)
      gone = target
      continue
    }
    const { open = null } = isRedirect(response) ? {} : sealed
    const opened = open === null ? response : await open(response, options)
    return { response: opened, call, isUntaken: false }
  }
}

/** Leaves a call as it is if the target has no key. */
async function seal(
  { notary, publicKey }: CallTarget,
  call: Pick<PreparedCall, 'headers' | 'body'> & { readonly credential: string | null },
): Promise<Pick<PreparedCall, 'headers' | 'body'> & Partial<Pick<SealedCall, 'open'>>> {
  const { headers, body, credential } = call
  if (publicKey === null) return { headers, body }
  const sealed = await sealCall({ target: { notary, publicKey }, body, credential })
  for (const [name, value] of Object.entries(sealed.headers)) headers.set(name, value)
  return { headers, body: sealed.body, open: sealed.open }
}

/** True if the gateway states that the named enclave did not take the call. */
async function isElsewhere(response: Response): Promise<boolean> {
  if (response.status !== 422 && response.status !== 400) return false
  const body = await readAtMost(response.clone(), ERROR_BYTES_MAX).catch(() => null)
  if (body === null) return false
  return isKeyConfigProblem(response, body) || errorWordsOf(body)?.code === 'notary_mismatch'
}

/**
 * The official SDKs repeat a call after 503, but not after 422. The repeat has the same nonce, so
 * the report counts it.
 */
function retryLater(response: Response): Response {
  const headers = new Headers(response.headers)
  headers.set('retry-after', '1')
  return new Response(response.body, { status: 503, headers })
}
