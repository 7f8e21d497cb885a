import { z } from 'zod'
import { bootConfiguration } from '../verified/log-replies.ts'
import { address, base64 } from '../verified/record-replies.ts'

/** `GET /` (interface, 2.8). */
export const apiInformation = z.strictObject({ title: z.string(), description: z.string() })

export const attestationReply = z.strictObject({
  attestation: base64,
  public_key: z.string(),
  notary: address,
  boot_configuration: bootConfiguration,
})

/** `GET /v1/notaries`. */
export const notaryList = z.strictObject({
  notaries: z.array(attestationReply.extend({ status: z.enum(['in_use', 'draining']) })),
})

export const health = z.strictObject({ status: z.literal('ok') })

export const readiness = z.strictObject({
  status: z.literal('ready'),
  failing: z.array(z.string()).max(0),
  chain: z.strictObject({ status: z.enum(['ok', 'failing']), anchors_waiting: z.int() }),
})

export const model = z.strictObject({
  id: z.string(),
  object: z.literal('model'),
  created: z.int(),
  owned_by: z.string(),
  name: z.string(),
  context_length: z.int().nullable(),
  max_completion_tokens: z.null(),
  pricing: z.looseObject({ prompt: z.string(), completion: z.string() }),
})

export const modelList = z.strictObject({ object: z.literal('list'), data: z.array(model) })

/** `POST /v1/embeddings` (interface, 2.6). */
export const embeddingList = z.looseObject({
  object: z.literal('list'),
  data: z.array(
    z.looseObject({
      object: z.literal('embedding'),
      index: z.int().min(0),
      embedding: z
        .union([z.array(z.number()), z.base64()])
        .describe('Numbers, or with encoding_format base64 their little-endian float32'),
    }),
  ),
  model: z.string(),
  usage: z.looseObject({ prompt_tokens: z.int(), total_tokens: z.int() }),
})

export const searchResults = z.strictObject({
  results: z.array(
    z.strictObject({
      title: z.string(),
      url: z.string(),
      snippet: z.string(),
      position: z.int().min(1),
    }),
  ),
})

/** `POST /v1/dashboard/node`. */
export const createdNode = z.strictObject({ response: z.literal('OK'), node_id: z.string() })
export const updatedNode = z.strictObject({
  is_name_updated: z.boolean(),
  is_archival_status_updated: z.boolean(),
})
export const done = z.strictObject({ response: z.literal('OK') })
