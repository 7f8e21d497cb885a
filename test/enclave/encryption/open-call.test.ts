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

it.each([
  { more: FRAMES_MAX - 1, code: 'bad_ciphertext' },
  { more: FRAMES_MAX, code: 'invalid_request' },
])(
  'a call of one frame and $more of a byte, which nobody sealed, is refused as $code',
  async ({ more, code }) => {
    const secretKey = new Uint8Array(randomBytes(32))
    const publicKey = publicKeyOf(secretKey)
    const { enc, frames } = await sealParts(encodeHex(publicKey), ['{'])
    const packets = [...frames, Buffer.alloc(more * 21, writeFrame(new Uint8Array(17)))]
    const request = Readable.from(packets.map((packet) => Buffer.from(packet)))
    const ring = {
      keys: () => [{ secretKey, publicKey, take: () => true }],
      statements: () => [],
      stop: () => undefined,
    }
    const call = { context: '', credentials: {}, encapsulated_key: enc, sealed_credential: null }
    const opening = openCall(request as IncomingMessage, { call, ring, space: new Space(2 ** 30) })
    await expect(opening).rejects.toMatchObject({ fault: { code } })
  },
)
