import { randomBytes } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { Readable } from 'node:stream'
import { expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { writeFrame } from '#attestation/ehbp.ts'
import { publicKeyOf } from '#enclave/encryption/hpke.ts'
import { openCall } from '#enclave/encryption/open-call.ts'
import { Space } from '#enclave/log/memory-budget.ts'
import { sealParts } from '../support/encrypted-calls.ts'

/** 1 MiB of framing, 20 bytes for a frame. */
const FRAMES_MAX = Math.floor(2 ** 20 / 20)

const secretKey = new Uint8Array(randomBytes(32))
const publicKey = publicKeyOf(secretKey)
const ring = {
  keys: () => [{ secretKey, publicKey, take: () => true }],
  statements: () => [],
  stop: () => undefined,
}
const seal = (...parts: readonly string[]) => sealParts(encodeHex(publicKey), parts)

function open({ enc }: { readonly enc: string }, packets: readonly Uint8Array[]) {
  const request = Readable.from(packets.map((packet) => Buffer.from(packet)))
  const call = { context: '', credentials: {}, encapsulated_key: enc, sealed_credential: null }
  return openCall(request as IncomingMessage, { call, ring, space: new Space(2 ** 30) })
}

it.each([
  { more: FRAMES_MAX - 1, code: 'bad_ciphertext' },
  { more: FRAMES_MAX, code: 'invalid_request' },
])(
  'a call of one frame and $more of a byte, which nobody sealed, is refused as $code',
  async ({ more, code }) => {
    const call = await seal('{')
    const packets = [...call.frames, Buffer.alloc(more * 21, writeFrame(new Uint8Array(17)))]
    await expect(open(call, packets)).rejects.toMatchObject({ fault: { code } })
  },
)

it('a body of 10 MiB is opened, and a body of a byte more is refused', async () => {
  const body = 'x'.repeat(10 * 2 ** 20)
  const whole = await seal(body)
  expect((await open(whole, whole.frames)).body).toHaveLength(body.length)
  const longer = await seal(body, ' ')
  const fault = { code: 'invalid_request', status: 413 }
  await expect(open(longer, longer.frames)).rejects.toMatchObject({ fault })
})
