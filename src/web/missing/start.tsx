import { showPage } from '../kit/frame.tsx'
import { MissingPage } from './missing-page.tsx'

showPage(<MissingPage />)
