import { beforeAll, expect, it } from 'vitest'
import { decodeBase64, encodeBase64 } from '../../../attestation/bytes.ts'
import { AttestationError } from '../../../attestation/nitro/attestation-error.ts'
import { createAttestationCheck } from '../../../src/enclaves/attestation-check.ts'
import { createEnclaveClient } from '../../../src/enclaves/enclave-client.ts'
import { startScriptedEnclave } from '../../support/scripted-enclave.ts'

const HOUR_MS = 3_600_000

/** A document of the simulated security module, made now. */
let document = ''
beforeAll(async () => {
  const { socketPath, stop } = await startScriptedEnclave()
  const client = createEnclaveClient({ socketPath, callsMax: 1, now: Date.now })
  document = (await client.identity()).attestation
  await client.close()
  await stop()
})

it('passes a document that is valid now, again and again', async () => {
  const check = createAttestationCheck({ isRootKnown: false, now: Date.now })
  await check(document)
  await check(document)
})

it('rejects a document once its leaf has expired, also one that it has passed before', async () => {
  let nowMs = Date.now()
  const check = createAttestationCheck({ isRootKnown: false, now: () => nowMs })
  await check(document)
  nowMs += 4 * HOUR_MS
  await expect(check(document)).rejects.toThrow(AttestationError)
})

it("rejects a document of another root than AWS's where that is the known one", async () => {
  const check = createAttestationCheck({ isRootKnown: true, now: Date.now })
  await expect(check(document)).rejects.toMatchObject({ code: 'root_untrusted' })
})

it('rejects a document with a flipped bit, also after it passed the true one', async () => {
  const check = createAttestationCheck({ isRootKnown: false, now: Date.now })
  await check(document)
  const bytes = decodeBase64(document)
  bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1
  await expect(check(encodeBase64(bytes))).rejects.toMatchObject({ code: 'signature_invalid' })
})
