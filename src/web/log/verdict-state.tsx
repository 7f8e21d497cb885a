import { useContext } from 'preact/hooks'
import type { Verdict } from '#attestation/evidence/verdict.ts'
import { Development, State } from '../kit/notices.tsx'

/** Also says if some checks were not made. */
export function VerdictState({ verdict }: { readonly verdict: Verdict }) {
  const isDevelopment = useContext(Development)
  if (verdict === 'invalid') return <State tone="bad">does not hold</State>
  if (verdict === 'not_accepted') return <State tone="warn">not accepted by your policy</State>
  if (verdict === 'verified')
    return <State tone="good">verified{isDevelopment && ', development only'}</State>
  return <State tone="open">holds, but not everything was checked</State>
}
