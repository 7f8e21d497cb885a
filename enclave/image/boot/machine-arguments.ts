/** What a machine is made of. */
export type MachinePlan = {
  readonly accelerator: Accelerator
  readonly kernelPath: string
  readonly ramdiskPath: string
  readonly cmdline: string
  readonly memoryMebibytes: number
  readonly cpus: number
  /** Port on 127.0.0.1 of this machine that leads to the guest's `port`. */
  readonly inward: { readonly hostPort: number; readonly port: number }
  /** Ports of the one host that the guest sees, and where on this machine they lead to: a port, or a Unix socket. */
  readonly outward: readonly { readonly port: number; readonly to: number | string }[]
  /** Program that carries one connection: Node.js and relay.ts. */
  readonly relay: { readonly command: string; readonly script: string }
}

/** How the guest's instructions run: all of them emulated, or by the processor. */
export type Accelerator = 'tcg' | 'kvm'

/** The guest's own address, as guest/enclave-init sets it. */
export const GUEST_ADDRESS = '10.0.2.15'

/** The one host that the guest reaches, as guest/enclave-init expects it. */
export const OUTWARD_ADDRESS = '10.0.2.100'

/**
 * Gives qemu's arguments (qemu-system-x86_64, 7.2 and later). The guest has a console, a network card, and nothing else: no
 * disk, no default device, no monitor. `restrict=on` cuts the network off from everything but the ports named here, this
 * machine's own loopback and qemu's name server included.
 */
export function machineArguments(plan: MachinePlan): readonly string[] {
  return [
    ...['-accel', plan.accelerator === 'kvm' ? 'kvm' : 'tcg,thread=multi'],
    ...['-cpu', plan.accelerator === 'kvm' ? 'host' : 'max'],
    ...['-machine', 'pc', '-m', String(plan.memoryMebibytes), '-smp', String(plan.cpus)],
    ...['-nodefaults', '-no-user-config', '-display', 'none', '-monitor', 'none'],
    // A restart is the guest's end: nothing comes back.
    ...['-serial', 'stdio', '-no-reboot'],
    ...['-kernel', plan.kernelPath, '-initrd', plan.ramdiskPath, '-append', plan.cmdline],
    ...['-netdev', networkOf(plan)],
    // Without a boot ROM, which qemu would otherwise want from another package.
    ...['-device', 'virtio-net-pci,netdev=net,romfile='],
  ]
}

function networkOf({ inward, outward, relay }: MachinePlan): string {
  const forwards = outward.map(({ port, to }) => {
    const command = [relay.command, relay.script, String(to)].map(quoteWord).join(' ')
    return `guestfwd=tcp:${OUTWARD_ADDRESS}:${port}-cmd:${escapeValue(command)}`
  })
  return [
    'user,id=net,restrict=on',
    `hostfwd=tcp:127.0.0.1:${inward.hostPort}-${GUEST_ADDRESS}:${inward.port}`,
    ...forwards,
  ].join(',')
}

/** A comma ends a value of qemu's options, two are one. */
function escapeValue(value: string): string {
  return value.replaceAll(',', ',,')
}

/** As a shell reads it, which is how qemu's network library splits a command. */
function quoteWord(word: string): string {
  return `'${word.replaceAll("'", `'\\''`)}'`
}
