import { describe, expect, it } from 'vitest'
import { type MachinePlan, machineArguments } from '#enclave/image/boot/machine.ts'

const PLAN: MachinePlan = {
  accelerator: 'tcg',
  kernelPath: '/k',
  ramdiskPath: '/r',
  cmdline: 'console=ttyS0 a,b',
  memoryMebibytes: 1024,
  cpus: 2,
  inward: { hostPort: 4001, port: 5000 },
  outward: [
    { port: 8090, to: 4002 },
    { port: 8089, to: '/a,b/x' },
  ],
  relay: { command: '/no de', script: "/it's, here/relay.ts" },
}

function argumentAfter(option: string, plan = PLAN): string | undefined {
  const words = machineArguments(plan)
  return words[words.indexOf(option) + 1]
}

describe('machineArguments', () => {
  it('machineArguments cuts the network off from all but the ports that are named', () => {
    expect(argumentAfter('-netdev')).toBe(
      "user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:4001-10.0.2.15:5000,guestfwd=tcp:10.0.2.100:8090-cmd:'/no de' '/it'\\''s,, here/relay.ts' '4002',guestfwd=tcp:10.0.2.100:8089-cmd:'/no de' '/it'\\''s,, here/relay.ts' '/a,,b/x'",
    )
  })

  it('machineArguments leaves no way out when no port is named', () => {
    expect(argumentAfter('-netdev', { ...PLAN, outward: [] })).not.toContain('guestfwd')
  })

  it('machineArguments gives no device, monitor or disk by default, and no second start', () => {
    expect(machineArguments(PLAN)).toEqual(
      expect.arrayContaining(['-nodefaults', '-no-user-config', '-no-reboot']),
    )
    expect(argumentAfter('-monitor')).toBe('none')
  })

  it("machineArguments emulates a processor, or uses the host's under KVM", () => {
    expect([argumentAfter('-accel'), argumentAfter('-cpu')]).toEqual(['tcg,thread=multi', 'max'])
    const plan = { ...PLAN, accelerator: 'kvm' } as const
    expect([argumentAfter('-accel', plan), argumentAfter('-cpu', plan)]).toEqual(['kvm', 'host'])
  })
})
