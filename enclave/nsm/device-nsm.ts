import { closeSync, constants as fsConstants, openSync } from 'node:fs'
import { constants as osConstants } from 'node:os'
import { createNsmClient, type NsmTransport } from './client.ts'
import { loadNativeCalls, type NativeCalls } from './native-calls.ts'
import { NSM_REQUEST_BYTES_MAX, NSM_RESPONSE_BYTES_MAX, type Nsm, NsmError } from './nsm.ts'

/** Where a Nitro enclave's kernel puts the module. */
export const NSM_DEVICE_PATH = '/dev/nsm'

/** _IOWR(0x0A, 0, struct nsm_raw): four u64, 32 bytes (linux/include/uapi/linux/nsm.h). */
export const NSM_IOCTL_COMMAND = 0xc020_0a00

/**
 * Gives the enclave's own security module. The device is opened once and kept. `native` is replaced in tests only.
 * Throws NsmError Unavailable when the device is missing or may not be opened.
 */
export async function openDeviceNsm(path: string = NSM_DEVICE_PATH, native?: NativeCalls): Promise<Nsm> {
  const calls = native ?? (await loadNativeCalls())
  return createNsmClient('device', createDeviceTransport(openDevice(path), calls))
}

/** Offsets of what one call needs, in one block of memory that is allocated once. */
const MESSAGE_BYTES = 32
const REQUEST_OFFSET = MESSAGE_BYTES
const RESPONSE_OFFSET = REQUEST_OFFSET + NSM_REQUEST_BYTES_MAX
const ARENA_BYTES = RESPONSE_OFFSET + NSM_RESPONSE_BYTES_MAX

/** Calls must not overlap: they share one block of memory (createNsmClient sees to it). */
function createDeviceTransport(descriptor: number, native: NativeCalls): NsmTransport {
  const arena = new ArrayBuffer(ARENA_BYTES)
  const bytes = new Uint8Array(arena)
  const message = new BigUint64Array(arena, 0, MESSAGE_BYTES / 8)
  const address = native.addressOf(arena)
  return {
    exchange: async (request) => {
      bytes.fill(0)
      bytes.set(request, REQUEST_OFFSET)
      message[0] = address + BigInt(REQUEST_OFFSET)
      message[1] = BigInt(request.length)
      message[2] = address + BigInt(RESPONSE_OFFSET)
      // Always the whole buffer: the kernel cuts a longer answer to this length without a word.
      message[3] = BigInt(NSM_RESPONSE_BYTES_MAX)
      const { result, errno } = await native.ioctl({ descriptor, command: NSM_IOCTL_COMMAND, address })
      if (result !== 0) throw ioctlError(errno)
      return readResponse(bytes, Number(message[3]))
    },
    close: () => closeSync(descriptor),
  }
}

function readResponse(bytes: Uint8Array, length: number): Uint8Array {
  if (length > NSM_RESPONSE_BYTES_MAX)
    throw new NsmError(
      'InvalidResponse',
      `the device answered ${length} bytes into ${NSM_RESPONSE_BYTES_MAX}`,
    )
  return bytes.slice(RESPONSE_OFFSET, RESPONSE_OFFSET + length)
}

/** As AWS's driver library maps them. */
function ioctlError(errno: number): NsmError {
  const code = errno === osConstants.errno.EMSGSIZE ? 'InputTooLarge' : 'InternalError'
  return new NsmError(code, `the security module's device failed with errno ${errno}`)
}

function openDevice(path: string): number {
  try {
    return openSync(path, fsConstants.O_RDWR)
  } catch (error) {
    const reason = error instanceof Error ? error.message : 'unknown'
    throw new NsmError('Unavailable', `cannot open the security module's device: ${reason}`, { cause: error })
  }
}
