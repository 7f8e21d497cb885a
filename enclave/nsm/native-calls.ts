/** The two things that JavaScript cannot do by itself and the device needs. */
export type NativeCalls = {
  /** Where the memory of an ArrayBuffer lies. Stays right as long as something holds the buffer. */
  addressOf(memory: ArrayBuffer): bigint
  /** ioctl(2) on a worker thread. `errno` means something only where `result` is -1. */
  ioctl(call: IoctlCall): Promise<{ readonly result: number; readonly errno: number }>
}

export type IoctlCall = {
  readonly descriptor: number
  readonly command: number
  /** The third argument: address of a structure. The caller keeps its memory, and all it points to, alive. */
  readonly address: bigint
}

/** Loads the C library's ioctl through koffi. Nothing else in the enclave loads koffi. Throws where koffi cannot. */
export async function loadNativeCalls(): Promise<NativeCalls> {
  const { default: koffi } = await import('koffi')
  // Declared without `...`, since koffi makes variadic calls only on the main thread, where each would stall the
  // enclave. The calling conventions of Linux on x86-64 and AArch64 pass these three arguments alike both ways.
  const ioctl = koffi.load(null).func('int ioctl(int descriptor, unsigned long command, void *address)')
  return {
    addressOf: (memory) => koffi.address(memory),
    ioctl: ({ descriptor, command, address }) =>
      new Promise((resolve, reject) => {
        ioctl.async(descriptor, command, address, (error: unknown, result: number) => {
          // koffi restores the worker thread's errno for the time of this callback only.
          const errno = koffi.errno()
          if (error === null) resolve({ result, errno })
          else reject(error)
        })
      }),
  }
}
