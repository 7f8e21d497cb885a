import { useContext } from 'preact/hooks'
import { Development, State } from '../kit/notices.tsx'

/** Also says if some checks were not made. */
export function VerdictState({
  verdict,
}: {
  readonly verdict: 'verified' | 'consistent' | 'invalid'
}) {
  const isDevelopment = useContext(Development)
  if (verdict === 'invalid') return <State tone="bad">does not hold</State>
  if (verdict === 'verified')
    return <State tone="good">verified{isDevelopment && ', development only'}</State>
  return <State tone="open">holds, but not everything was checked</State>
}
