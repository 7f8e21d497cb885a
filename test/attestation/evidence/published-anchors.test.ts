import { judgePublished } from '../judge-published.ts'

judgePublished(
  /^bundle\/(alone|anchor|block|deep|first|format|last|log|receipt-in-log|reanchored|transaction|tree-head|unmined|unreadable|without)/,
  80,
)
