import { z } from 'zod'

const lockSchema = z.object({
  packages: z.record(
    z.string(),
    z.looseObject({
      optional: z.boolean().optional(),
      os: z.array(z.string()).optional(),
      cpu: z.array(z.string()).optional(),
    }),
  ),
})

type Entry = z.output<typeof lockSchema>['packages'][string]
type Platform = { readonly os: string; readonly cpu: string }

/**
 * Returns true if two texts of package-lock.json install the same packages on this platform. Some
 * versions of npm list optional packages for other platforms too.
 */
export function isSameLock(one: string, other: string, platform: Platform): boolean {
  const [first, second] = [one, other].map((text) => packagesOf(text))
  if (first === undefined || second === undefined) return false
  return [...first.keys(), ...second.keys()].every((name) => {
    const [a, b] = [first.get(name), second.get(name)]
    if (a !== undefined && b !== undefined) return JSON.stringify(a) === JSON.stringify(b)
    const single = a ?? b
    return single?.optional === true && isForOthers(single, platform)
  })
}

/** Returns true if npm never installs this package on this platform. */
function isForOthers({ os, cpu }: Entry, platform: Platform): boolean {
  const excludes = (named: readonly string[] | undefined, own: string) =>
    named !== undefined && !named.includes(own) && !named.some((name) => name.startsWith('!'))
  return excludes(os, platform.os) || excludes(cpu, platform.cpu)
}

function packagesOf(text: string) {
  try {
    return new Map(Object.entries(lockSchema.parse(JSON.parse(text)).packages))
  } catch {
    return undefined
  }
}
