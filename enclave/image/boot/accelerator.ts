import { constants } from 'node:fs'
import { access } from 'node:fs/promises'
import { startGuarded } from './guarded-program.ts'
import { QEMU } from './machine.ts'
import type { Accelerator } from './machine-arguments.ts'
import { MachineConsole } from './machine-console.ts'

/** How long a kernel may take to say its first word with KVM, milliseconds; it takes under one second where KVM works. */
export const KVM_PROBE_MS = 4_000

/**
 * Gives `kvm` where this kernel starts with it, else `tcg`. That /dev/kvm can be opened says too little: there are machines
 * where it can, and nothing ever runs.
 */
export async function chooseAccelerator(kernelPath: string): Promise<Accelerator> {
  const isOpen = await access('/dev/kvm', constants.R_OK | constants.W_OK).then(
    () => true,
    () => false,
  )
  return isOpen && (await startsWithKvm(kernelPath)) ? 'kvm' : 'tcg'
}

async function startsWithKvm(kernelPath: string): Promise<boolean> {
  const output = new MachineConsole(() => performance.now())
  const words = [
    ...['-accel', 'kvm', '-cpu', 'host', '-machine', 'pc', '-m', '512', '-nodefaults', '-no-user-config'],
    ...['-display', 'none', '-monitor', 'none', '-serial', 'stdio', '-no-reboot'],
    ...['-kernel', kernelPath, '-append', 'console=ttyS0 earlyprintk=ttyS0 panic=-1'],
  ]
  const program = await startGuarded([QEMU, ...words], (bytes) => output.add(bytes))
  void program.exited.then(() => output.end())
  const line = await output.find((text) => text.includes('Linux version '), KVM_PROBE_MS)
  await program.stop()
  return line !== null
}
