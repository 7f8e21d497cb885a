import { z } from 'zod'

const lockSchema = z.object({
  packages: z.record(z.string(), z.looseObject({ optional: z.boolean().optional() })),
})

/**
 * Whether two texts of package-lock.json install the same packages. npm lists, or leaves out,
 * optional packages for other platforms as its version has it; no build takes anything from those.
 */
export function isSameLock(one: string, other: string): boolean {
  const [first, second] = [one, other].map((text) => packagesOf(text))
  if (first === undefined || second === undefined) return false
  return [...first.keys(), ...second.keys()].every((name) => {
    const [a, b] = [first.get(name), second.get(name)]
    if (a === undefined || b === undefined) return (a ?? b)?.optional === true
    return JSON.stringify(a) === JSON.stringify(b)
  })
}

function packagesOf(text: string) {
  try {
    return new Map(Object.entries(lockSchema.parse(JSON.parse(text)).packages))
  } catch {
    return undefined
  }
}
