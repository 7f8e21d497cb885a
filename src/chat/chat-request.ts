import { z } from 'zod'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { chatFormWith, contentParts, providersChat } from '#enclave/protocol/chat-form.ts'
import { literal, object } from '#enclave/protocol/form.ts'
import { jsonSchemaOfForm, schemaOf } from '../api/form-schema.ts'
import { described, jsonSchemaOf } from '../api/schemas.ts'
import { type ChatSize, measureChat } from './chat-tokens.ts'

/** The part of a request that the gateway reads. The enclave gets the exact bytes. */
export type ChatRequest = {
  readonly model: string
  readonly isStream: boolean
  /** True if the caller asked for the usage chunk. */
  readonly includesUsage: boolean
  readonly size: ChatSize
}

type ChatMembers = JsonObject & {
  readonly model: string
  readonly messages: readonly Json[]
  readonly stream_options?: { readonly include_usage?: boolean | null } | null
}

/** Plain chat accepts only content parts of the known types. */
const plainChat = chatFormWith(
  object({ type: literal(...Object.keys(contentParts)) }, { byType: contentParts }),
)

export const chatRequest = schemaOf<ChatMembers>(plainChat).transform(requestOf)

/** The enclave checks the members, so `members` is only for the documentation. */
export function providersRequestWith(members: z.ZodRawShape) {
  return described(schemaOf<ChatMembers>(providersChat).transform(requestOf), () => {
    const own = jsonSchemaOfForm(providersChat)
    const { properties } = jsonSchemaOf(z.object(members))
    return { ...own, properties: { ...Object(own.properties), ...Object(properties) } }
  })
}

function requestOf(request: ChatMembers): ChatRequest {
  return {
    model: request.model,
    isStream: request.stream === true,
    includesUsage: request.stream_options?.include_usage === true,
    size: measureChat(request),
  }
}
