import { encodeHex } from '#attestation/bytes.ts'
import { ApiError } from '../../api/errors.ts'
import {
  type ContentCipher,
  type ContentIdentity,
  openContent,
} from '../../storage/content-cipher.ts'
import { type ContentFault, ContentUnavailable } from '../../storage/errors.ts'
import type { Tables } from '../../storage/tables.ts'

/** Why a record is shown without its stored request and response. */
export type Withheld =
  | ({ readonly kind: 'erased' } & Erasure)
  | { readonly kind: 'unavailable'; readonly code: ContentFault }

/** What a record states about its erased content. */
export type Erasure = {
  /** Unix seconds. */
  readonly at: number
  readonly by: Tables['erasures']['requested_by']
  readonly reason: string
}

/** Canonical JSON texts. */
type RecordContent = {
  readonly request: string | null
  readonly response: string | null
  /** Why the texts are null although the gateway received them. Otherwise absent. */
  readonly withheld?: Withheld
}

/** A record's content, and the act that erased it. */
export type ContentRow = {
  readonly id: string
  readonly hash: Uint8Array
  readonly request: string | null
  readonly response: string | null
  readonly content: Uint8Array | null
  /** Null for content that was not erased. */
  readonly gone_at: number | null
  readonly gone_by: Erasure['by'] | null
  readonly gone_for: string | null
}

/** The encryption of content is bound to the record's row and hash. */
export function recordIdentity({
  id,
  hash,
}: {
  readonly id: string
  /** 64 hex digits. */
  readonly hash: string
}): ContentIdentity {
  return ['records', id, hash]
}

/** Erased content is not returned, even while it is still stored. */
export function readContent(row: ContentRow, cipher: ContentCipher | null): RecordContent {
  const { gone_at: at, gone_by: by, gone_for: reason, request, response, content } = row
  if (at !== null && by !== null && reason !== null)
    return { request: null, response: null, withheld: { kind: 'erased', at, by, reason } }
  if (content === null) return { request, response }
  try {
    const identity = recordIdentity({ id: row.id, hash: encodeHex(row.hash) })
    const [asked = null, answered = null] = openContent(cipher, content, identity)
    return { request: asked, response: answered }
  } catch (error) {
    if (!(error instanceof ContentUnavailable)) throw error
    const withheld = { kind: 'unavailable', code: error.code } as const
    return { request: null, response: null, withheld }
  }
}

/** Returns the error for a request that needs the withheld content. */
export function refusalOf(withheld: Withheld): Error {
  return withheld.kind === 'erased'
    ? new ApiError('content_erased', 'Question and answer were erased')
    : new ContentUnavailable(withheld.code)
}
