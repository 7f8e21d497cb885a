import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import { decodeResponse, encodeRequest } from '#enclave/nsm/nsm.ts'
import { openSocketNsm } from '#enclave/nsm/socket-nsm.ts'
import { encodeFrame, readFrames } from '#enclave/protocol/nsm-wire.ts'
import { type NsmServer, serveSoftwareNsm } from '#src/local/nsm/nsm-server.ts'
import { folderOfTest } from '../../../support/folders.ts'

const NO_INPUT = { publicKey: null, userData: null, nonce: null }

let folder: string
let server: NsmServer
const start = () =>
  serveSoftwareNsm({ socketPath: join(folder, 's'), rootFile: join(folder, 'root.pem') })
beforeEach(async () => {
  folder = folderOfTest()
  server = await start()
})
afterEach(() => server.close())

describe('a software module behind its socket', () => {
  it('a software module behind its socket answers as behind the device', async () => {
    const nsm = await openSocketNsm(server.socketPath)
    expect(nsm.kind).toBe('software')
    expect(await nsm.random(300)).toHaveLength(300)
    const asked = Array.from({ length: 8 }, (_, index) => Uint8Array.of(index))
    const documents = await Promise.all(asked.map((nonce) => nsm.attest({ ...NO_INPUT, nonce })))
    expect(documents.map((document) => decodeAttestationPayload(document).nonce)).toEqual(asked)
    await expect(nsm.attest({ ...NO_INPUT, publicKey: new Uint8Array() })).rejects.toMatchObject({
      code: 'InvalidArgument',
    })
    nsm.close()
  })

  it('a software module behind its socket is another instance for each connection, under one root', async () => {
    const payloads = await Promise.all(
      [1, 2].map(async () => {
        const nsm = await openSocketNsm(server.socketPath)
        const payload = decodeAttestationPayload(await nsm.attest(NO_INPUT))
        nsm.close()
        return payload
      }),
    )
    expect(new Set(payloads.map(({ moduleId }) => moduleId)).size).toBe(2)
    expect(payloads[0]?.cabundle[0]).toEqual(payloads[1]?.cabundle[0])
    expect(existsSync(server.rootFile)).toBe(true)
  })

  it('a software module behind its socket reads requests byte by byte and several at once', async () => {
    const socket = connect(server.socketPath)
    const answers = readFrames(socket, 0x3000)
    const request = encodeFrame(encodeRequest({ kind: 'GetRandom' }))
    for (const byte of request) socket.write(Uint8Array.of(byte))
    socket.write(Buffer.concat([request, request]))
    for (let answer = 0; answer < 3; answer++) {
      const { value } = await answers.next()
      expect(decodeResponse(value ?? new Uint8Array())).toMatchObject({ kind: 'GetRandom' })
    }
    socket.destroy()
  })

  it("a software module refuses a request beyond the device's limit, and hangs up on a much larger one", async () => {
    const socket = connect(server.socketPath)
    const answers = readFrames(socket, 0x3000)
    socket.write(encodeFrame(new Uint8Array(4097)))
    const { value } = await answers.next()
    expect(decodeResponse(value ?? new Uint8Array())).toEqual({
      kind: 'Error',
      code: 'InputTooLarge',
    })
    socket.write(Uint8Array.of(0xff, 0xff, 0xff, 0xff))
    await once(socket, 'close')
  })

  it('a software module behind its socket is unavailable to the enclave once it is gone, and where nobody listens', async () => {
    const nsm = await openSocketNsm(server.socketPath)
    await nsm.random(1)
    await server.close()
    for (let call = 0; call < 2; call++)
      await expect(nsm.random(1)).rejects.toMatchObject({ name: 'NsmError', code: 'Unavailable' })
    await expect(openSocketNsm(server.socketPath)).rejects.toMatchObject({ code: 'Unavailable' })
    server = await start()
  })
})
