import { expect, it } from 'vitest'
import { NODE_LIMITS } from '#src/nodes/runs/limits.ts'
import { createLiveness } from '#src/nodes/runs/liveness.ts'

const LIMITS = {
  ...NODE_LIMITS,
  silenceMs: 30_000,
  silenceTimeoutMs: 20_000,
  pingMs: 600_000,
  pingTimeoutMs: 10_000,
  pingMissesMax: 3,
  healthMs: 1e9,
  reconnectMs: 1e9,
}

/** A connection with a clock of its own; `told` is what was sent. */
function watch(limits: Partial<typeof LIMITS> = {}, random = () => 1) {
  const reported: string[] = []
  let nowMs = 0
  let ids = 0
  const liveness = createLiveness({
    limits: { ...LIMITS, ...limits },
    now: () => nowMs,
    random,
    makeId: () => `id-${++ids}`,
    actions: {
      socketPing: () => reported.push('socket ping'),
      send: (control) => {
        const { kind, nonce } = control
        if (kind !== 'ping') reported.push(`${kind} ${nonce}`)
        else
          reported.push(
            `ping ${nonce} rtt ${control.rttMs} hits ${control.pingStreak} misses ${control.missStreak}`,
          )
      },
      lose: (why) => reported.push(`lost: ${why}`),
    },
  })
  return {
    reported,
    liveness,
    /** Lets time pass, tending every second. */
    pass(ms: number, { isIdle = true, isAlive = false } = {}) {
      for (const endMs = nowMs + ms; nowMs < endMs; ) {
        nowMs += 1_000
        if (isAlive) liveness.received()
        liveness.tend(isIdle)
      }
    },
  }
}

it('a silent socket is pinged after 30 s and lost 20 s later', () => {
  const { reported, pass } = watch()
  pass(29_000)
  expect(reported).toEqual([])
  pass(1_000)
  expect(reported).toEqual(['socket ping'])
  pass(19_000)
  expect(reported).toEqual(['socket ping'])
  pass(1_000)
  expect(reported).toEqual(['socket ping', 'lost: silent'])
})

it('a silent socket is not lost when anything comes from it', () => {
  const { reported, pass, liveness } = watch()
  pass(49_000)
  liveness.received()
  pass(29_000)
  expect(reported).toEqual(['socket ping'])
})

it('a ping of the protocol comes every 600 s and carries what the last ones gave', () => {
  const { reported, pass, liveness } = watch()
  pass(600_000, { isAlive: true })
  expect(reported).toEqual(['ping id-1 rtt 0 hits 0 misses 0'])
  pass(2_000, { isAlive: true })
  expect(liveness.ponged('id-1')).toBe(true)
  pass(598_000, { isAlive: true })
  expect(reported.at(-1)).toBe('ping id-2 rtt 2000 hits 1 misses 0')
})

it('three pings of the protocol that are not answered in 10 s close the connection', () => {
  const { reported, pass } = watch()
  pass(3 * 600_000 + 9_000, { isAlive: true })
  expect(reported.at(-1)).toBe('ping id-3 rtt 0 hits 0 misses 2')
  pass(1_000, { isAlive: true })
  expect(reported.at(-1)).toBe('lost: no answer to pings')
})

it('a ping of the protocol is not answered by a pong that is late or was made up', () => {
  const { pass, liveness } = watch()
  pass(600_000, { isAlive: true })
  expect(liveness.ponged('made-up')).toBe(false)
  pass(10_000, { isAlive: true })
  expect(liveness.ponged('id-1')).toBe(false)
})

it('the first ping of the protocol is spread at random over the second half of the interval', () => {
  const { reported, pass } = watch({}, () => 0)
  pass(300_000, { isAlive: true })
  expect(reported).toHaveLength(1)
})

it('the health of a node is what it last said when it was asked', () => {
  const { reported, pass, liveness } = watch({ healthMs: 60_000 })
  const load = { cpuPercent: 1, ramPercent: 2, diskPercent: 3, gpus: 0 }
  expect(liveness.reported('id-1', load)).toBe(false)
  pass(60_000, { isAlive: true })
  expect(reported).toEqual(['health id-1'])
  expect(liveness.reported('id-1', load)).toBe(true)
  expect(liveness.reported('id-1', load)).toBe(false)
  expect(liveness.load()).toEqual(load)
})

it('an old connection is asked to dial again once it is idle, and gets no work until it does', () => {
  const { reported, pass, liveness } = watch({ reconnectMs: 100_000 })
  pass(120_000, { isAlive: true, isIdle: false })
  expect(reported).toEqual([])
  pass(1_000, { isAlive: true })
  expect(reported).toEqual(['reconnect id-1'])
  expect(liveness.isLeaving()).toBe(true)
})

it('an old connection gets work again when the node stays', () => {
  const { pass, liveness } = watch({ reconnectMs: 100_000 })
  pass(100_000, { isAlive: true })
  expect(liveness.isLeaving()).toBe(true)
  pass(10_000, { isAlive: true })
  expect(liveness.isLeaving()).toBe(false)
})
