import { closeSync, constants as fsConstants, openSync } from 'node:fs'
import { constants as osConstants } from 'node:os'
import { NSM_REQUEST_BYTES_MAX, NSM_RESPONSE_BYTES_MAX } from '../protocol/nsm-wire.ts'
import { createNsmClient, type Nsm, NsmError, type NsmTransport } from './nsm.ts'

/** _IOWR(0x0A, 0, struct nsm_raw): four u64, 32 bytes (linux/include/uapi/linux/nsm.h). */
const NSM_IOCTL_COMMAND = 0xc020_0a00

/**
 * Opens the enclave's own security module. It stays open. `native` is only for tests. Throws
 * NsmError Unavailable when the device is missing or access is denied.
 */
export async function openDeviceNsm(path = '/dev/nsm', native?: NativeCalls): Promise<Nsm> {
  const calls = native ?? (await loadNativeCalls())
  return createNsmClient('device', createDeviceTransport(openDevice(path), calls))
}

/** Offsets of the parts of one call, in one block of memory that is allocated once. */
const MESSAGE_BYTES = 32
const REQUEST_OFFSET = MESSAGE_BYTES
const RESPONSE_OFFSET = REQUEST_OFFSET + NSM_REQUEST_BYTES_MAX
const ARENA_BYTES = RESPONSE_OFFSET + NSM_RESPONSE_BYTES_MAX

/** Calls share one block of memory, so they must not overlap. createNsmClient ensures this. */
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
      // The length of the whole buffer, because the kernel silently cuts longer answers.
      message[3] = BigInt(NSM_RESPONSE_BYTES_MAX)
      const { result, errno } = await native.ioctl({
        descriptor,
        command: NSM_IOCTL_COMMAND,
        address,
      })
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

/** Converts error numbers to errors like AWS's driver library. */
function ioctlError(errno: number): NsmError {
  const code = errno === osConstants.errno.EMSGSIZE ? 'InputTooLarge' : 'InternalError'
  return new NsmError(code, `the security module's device failed with errno ${errno}`)
}

function openDevice(path: string): number {
  try {
    return openSync(path, fsConstants.O_RDWR)
  } catch (error) {
    const reason = error instanceof Error ? error.message : 'unknown'
    throw new NsmError('Unavailable', `cannot open the security module's device: ${reason}`, {
      cause: error,
    })
  }
}

/** Two operations that JavaScript does not have. */
export type NativeCalls = {
  /** Returns the memory address of an ArrayBuffer. It is valid while the buffer is referenced. */
  addressOf(memory: ArrayBuffer): bigint
  /** Calls ioctl(2) on a worker thread. `errno` is valid only if `result` is -1. */
  ioctl(call: IoctlCall): Promise<{ readonly result: number; readonly errno: number }>
}

export type IoctlCall = {
  readonly descriptor: number
  readonly command: number
  /**
   * The third argument: the address of a structure. During the call, the caller must reference the
   * structure and all memory that the structure points to.
   */
  readonly address: bigint
}

/**
 * Loads the C library's ioctl through koffi. Nothing else in the enclave loads koffi. Throws where
 * koffi does not work.
 */
export async function loadNativeCalls(): Promise<NativeCalls> {
  const { default: koffi } = await import('koffi')
  // Declared without `...`: koffi makes variadic calls only on the main thread, where they would
  // block the enclave. On Linux for x86-64 and AArch64, a normal call passes these three arguments
  // in the same way.
  const ioctl = koffi
    .load(null)
    .func('int ioctl(int descriptor, unsigned long command, void *address)')
  return {
    addressOf: (memory) => koffi.address(memory),
    ioctl: ({ descriptor, command, address }) =>
      new Promise((resolve, reject) => {
        ioctl.async(descriptor, command, address, (error: unknown, result: number) => {
          // koffi restores the worker thread's errno only during this callback.
          const errno = koffi.errno()
          if (error === null) resolve({ result, errno })
          else reject(error)
        })
      }),
  }
}
