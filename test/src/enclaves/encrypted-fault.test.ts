import { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { EnclaveClient } from '#src/enclaves/enclave-client.ts'
import { type CallersCall, sealParts } from '../../enclave/support/encrypted-calls.ts'
import { startTestEnclave, type TestEnclave } from '../../enclave/support/test-enclave.ts'

let enclave: TestEnclave
let client: EnclaveClient

beforeAll(async () => {
  enclave = await startTestEnclave({ providers: [] })
  client = new EnclaveClient({ callsMax: 4, socketPath: enclave.socketPath })
})

afterAll(async () => {
  await client.close()
  await enclave.stop()
})

/** Parts as their caller sends them: `pauseMs` between two. */
async function* slowly(parts: readonly Uint8Array[], pauseMs: number) {
  for (const part of parts) {
    yield part
    await sleep(pauseMs)
  }
}

async function pass(call: CallersCall, pauseMs: number) {
  const stream = Readable.from(slowly(call.frames, pauseMs), { objectMode: false })
  stream.on('error', () => undefined)
  const header = {
    context: 'c',
    credentials: {},
    encapsulated_key: call.enc,
    sealed_credential: null,
  }
  const { signal } = new AbortController()
  return client.encrypted(header, { stream, fault: () => null }, signal)
}

describe('the fault of an encrypted call that is refused before all of it was sent', () => {
  it.each([0, 30])(
    'the fault of a call refused before it was all sent reaches the gateway, with %i ms between its parts',
    async (pauseMs) => {
      const nobodys = (await sealParts((await enclave.identity()).public_key.slice(2, 66), [])).enc
      for (let round = 0; round < 4; round++) {
        const parts = ['x', ...Array.from({ length: 16 }, () => 'y'.repeat(300_000))]
        const answer = await pass(await sealParts(nobodys, parts), pauseMs)
        expect(answer).toMatchObject({ kind: 'fault', fault: { code: 'unknown_key', status: 422 } })
      }
      const key = (await enclave.identity()).encryption_keys?.[0]?.public_key ?? ''
      const answer = await pass(await sealParts(key, ['{}']), 0)
      expect(answer.kind).toBe('answer')
      if (answer.kind === 'answer') for await (const _ of answer.events);
    },
  )
})
