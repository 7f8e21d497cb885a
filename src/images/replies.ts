import { z } from 'zod'
import { described } from '../api/described.ts'

/** Images response (interface, 2.5). */
export const imageList = z.strictObject({
  created: z.int().min(0),
  data: z.array(
    z.strictObject({
      url: z.string().nullish(),
      b64_json: z.base64().nullish(),
      revised_prompt: z.string().nullish(),
    }),
  ),
})

/** Bytes. */
export const imageFile = described(z.unknown(), () => ({ type: 'string', format: 'binary' }))
