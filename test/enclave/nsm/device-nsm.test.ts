import { writeFile } from 'node:fs/promises'
import { constants } from 'node:os'
import { join } from 'node:path'
import koffi from 'koffi'
import { beforeAll, describe, expect, it } from 'vitest'
import {
  type IoctlCall,
  loadNativeCalls,
  type NativeCalls,
  openDeviceNsm,
} from '#enclave/nsm/device-nsm.ts'
import { bootSecurityModule } from '#src/local/nsm/security-module.ts'
import { folderOfFile } from '../../support/folders.ts'

const NOW_MS = Date.parse('2026-11-21T08:00:00Z')
const NO_INPUT = { publicKey: null, userData: null, nonce: null }

const folder = folderOfFile()
let device: string
let native: NativeCalls
beforeAll(async () => {
  device = join(folder, 'nsm')
  await writeFile(device, '')
  native = await loadNativeCalls()
})

/**
 * Reads and writes the memory of this process at an address, as the kernel does with what ioctl(2)
 * is given.
 */
const memory = (address: bigint, length: number) => new Uint8Array(koffi.view(address, length))

type Message = { request: Uint8Array; response: Uint8Array; setLength: (length: bigint) => void }

/** A kernel that follows the pointers of struct nsm_raw and hands what it finds to `answer`. */
function fakeKernel(
  answer: (message: Message, call: IoctlCall) => number | Promise<number>,
): NativeCalls {
  return {
    addressOf: native.addressOf,
    ioctl: async (call) => {
      const raw = new BigUint64Array(koffi.view(call.address, 32))
      const [requestAt = 0n, requestLength = 0n, responseAt = 0n, responseLength = 0n] = raw
      const errno = await answer(
        {
          request: memory(requestAt, Number(requestLength)),
          response: memory(responseAt, Number(responseLength)),
          setLength: (length) => {
            raw[3] = length
          },
        },
        call,
      )
      return errno === 0 ? { result: 0, errno: 0 } : { result: -1, errno }
    },
  }
}

async function moduleBehindKernel(seen: IoctlCall[] = []): Promise<NativeCalls> {
  const module = await bootSecurityModule({ rootFile: null, now: () => NOW_MS })
  return fakeKernel(({ request, response, setLength }, call) => {
    seen.push(call)
    expect(response.length).toBe(0x3000)
    const answer = module.processRequest(request.slice())
    response.set(answer)
    setLength(BigInt(answer.length))
    return 0
  })
}

describe('the device', () => {
  it('the NSM device carries every call to the module and its answer back', async () => {
    const seen: IoctlCall[] = []
    const nsm = await openDeviceNsm(device, await moduleBehindKernel(seen))
    expect(nsm.kind).toBe('device')
    expect(await nsm.random(300)).toHaveLength(300)
    expect(
      (await nsm.attest({ ...NO_INPUT, userData: new Uint8Array(1024) })).length,
    ).toBeGreaterThan(4000)
    await expect(nsm.attest({ ...NO_INPUT, publicKey: new Uint8Array() })).rejects.toMatchObject({
      code: 'InvalidArgument',
    })
    expect(new Set(seen.map(({ command }) => command))).toEqual(new Set([0xc0200a00]))
    expect(new Set(seen.map(({ descriptor }) => descriptor)).size).toBe(1)
    nsm.close()
  })

  it.each([
    ['EMSGSIZE', constants.errno.EMSGSIZE, 'InputTooLarge'],
    ['EIO', constants.errno.EIO, 'InternalError'],
  ])('the NSM device maps the errno %s to an NsmError', async (_, errno, code) => {
    const nsm = await openDeviceNsm(
      device,
      fakeKernel(() => errno),
    )
    await expect(nsm.random(1)).rejects.toMatchObject({ name: 'NsmError', code })
    nsm.close()
  })

  it('the NSM device refuses an answer that was cut, and an answer of no bytes', async () => {
    const whole = Buffer.from('a16947657452616e646f6da16672616e646f6d43010203', 'hex')
    for (const length of [0, whole.length - 1]) {
      const kernel = fakeKernel(({ response, setLength }) => {
        response.set(whole)
        setLength(BigInt(length))
        return 0
      })
      const nsm = await openDeviceNsm(device, kernel)
      await expect(nsm.random(3)).rejects.toMatchObject({ code: 'InvalidResponse' })
      nsm.close()
    }
  })

  it('the NSM device finds nothing of an earlier answer in a later one', async () => {
    let first = true
    const kernel = fakeKernel(({ response, setLength }) => {
      if (first) response.fill(0xff)
      else expect(response.every((byte) => byte === 0)).toBe(true)
      first = false
      setLength(1n)
      return 0
    })
    const nsm = await openDeviceNsm(device, kernel)
    await expect(nsm.random(1)).rejects.toMatchObject({ code: 'InvalidResponse' })
    await expect(nsm.random(1)).rejects.toMatchObject({ code: 'InvalidResponse' })
    nsm.close()
  })
})

describe("the C library's ioctl", () => {
  it("the C library's ioctl is really called, and its errno comes back from a device that refuses", async () => {
    const nsm = await openDeviceNsm('/dev/null')
    await expect(nsm.random(1)).rejects.toMatchObject({
      code: 'InternalError',
      message: expect.stringMatching(/errno \d+/),
    })
    nsm.close()
    const answer = await native.ioctl({ descriptor: 999_999, command: 0xc0200a00, address: 0n })
    expect(answer).toEqual({ result: -1, errno: constants.errno.EBADF })
  })
})
